package populate

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

func TestTheRecordOfExistingObjectsIsWrittenInAStableOrderAndReadBack(t *testing.T) {
	written := existing{"b": {"z": true, "a": true}, "a.b": {"1x": true}}
	require.Equal(t, "a.b=1x,b=a.z", written.String())
	require.Equal(t, written, parseExisting(written.String()))
}

func TestInvalidRecordsOfExistingObjectsAreIgnored(t *testing.T) {
	for _, annotation := range []string{"", ",", "a", ",,a,"} {
		require.Empty(t, parseExisting(annotation), annotation)
	}
	require.Equal(t, existing{"a": {"": true}, "b": {"c": true}}, parseExisting("a=,x,b=c"))
	object := declare(teamA(), templateOf(t, "a", settings)).Objects[0]
	require.False(t, parseExisting("a=,x,b=c").has(&object))
}

func TestObjectsUnderReportAreRecordedOnceTheyExist(t *testing.T) {
	reported := templateOf(t, "reported", settings, limits)
	reported.Spec.DriftPolicy = v1alpha1.DriftReport
	corrected := templateOf(t, "corrected", creator)
	declared := declare(teamA(), corrected, reported)
	recorded := func(plan Plan, result Result) []bool {
		read := parseExisting(ExistingObjects(plan, result))
		require.NotContains(t, read, "corrected")
		return []bool{read.has(&declared.Objects[1]), read.has(&declared.Objects[2])}
	}
	index := match.NewIndex(corrected, reported)
	done := func(plan Plan, failing string) (result Result) {
		for _, change := range pending(plan) {
			outcome := Outcome{Change: change}
			if change.Name == failing {
				outcome.Failure = &Failure{err: errors.New("refused")}
			}
			result.Outcomes = append(result.Outcomes, outcome)
		}
		return result
	}

	plan := NewPlan(declared, index, Observed{})
	require.Equal(t, []bool{true, true}, recorded(plan, done(plan, "")))
	require.Equal(t, []bool{true, false}, recorded(plan, done(plan, "limits")),
		"an object that could not be applied does not exist")
	require.Empty(t, ExistingObjects(plan, Result{}), "no object exists before the plan is applied")

	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = ExistingObjects(plan, done(plan, ""))
	plan = NewPlan(declared, index, Observed{})
	require.Equal(t, []bool{true, true}, recorded(plan, Result{}), "an object that was deleted stays in the record")
	require.Empty(t, ExistingObjects(NewPlan(declare(teamA(), corrected), index, Observed{}), Result{}),
		"an object that is no longer declared does not")
}

func TestObjectsAreRemovedFromTheRecordBeforeTheyAreDeleted(t *testing.T) {
	reported := templateOf(t, "reported", settings, limits)
	reported.Spec.DriftPolicy = v1alpha1.DriftReport
	declared := declare(teamA(), reported)
	ids := []ObjectID{declared.Objects[0].ID(), declared.Objects[1].ID()}
	change := func(i int) Change {
		return Change{Kind: ids[i].WithVersion("v1"), Name: ids[i].Name, Template: "reported"}
	}
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = existing{
		"other": {"a": true}, "reported": {digestOf(ids[0]): true, digestOf(ids[1]): true},
	}.String()
	var written []string
	var refusal error
	store := newExistingStore(Plan{Declared: declared}, func(_ context.Context, value string) error {
		written = append(written, value)
		return refusal
	})
	refusal = errors.New("refused")
	require.ErrorIs(t, store.remove(t.Context(), change(0)), refusal)
	refusal = nil
	require.NoError(t, store.remove(t.Context(), change(0)))
	require.NoError(t, store.remove(t.Context(), change(0), Change{Name: "unknown", Template: "reported"}),
		"the record did not change")
	require.NoError(t, store.remove(t.Context(), change(1)))
	first := existing{"other": {"a": true}, "reported": {digestOf(ids[1]): true}}.String()
	require.Equal(t, []string{first, first, "other=a"}, written)
}

func TestObjectsThatNstplMayHaveDeletedAreNotRecordedAsExisting(t *testing.T) {
	reported := templateOf(t, "reported", settings)
	reported.Spec.DriftPolicy = v1alpha1.DriftReport
	declared := declare(teamA(), reported)
	object := &declared.Objects[0]
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = existing{
		"reported": {digestOf(object.ID()): true},
	}.String()
	plan := Plan{Declared: declared, Changes: []Change{{
		Action: Configure, Kind: object.GroupVersionKind(), Name: object.GetName(), Template: "reported",
		Declared: object,
	}}}
	failed := Outcome{Change: plan.Changes[0], Failure: &Failure{err: errors.New("the connection was reset")}}
	require.NotEmpty(t, ExistingObjects(plan, Result{Outcomes: []Outcome{failed}}))
	failed.MaybeDeleted = true
	require.Empty(t, ExistingObjects(plan, Result{Outcomes: []Outcome{failed}}), "nstpl creates it again")
}
