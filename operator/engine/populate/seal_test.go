package populate

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

func TestSealsAreWrittenInAStableOrderAndReadBack(t *testing.T) {
	written := seals{"b": {"z": true, "a": true}, "a.b": {"1x": true}}
	require.Equal(t, "a.b=1x,b=a.z", written.String())
	require.Equal(t, written, parseSeals(written.String()))
}

func TestSealsThatCannotBeReadAreNone(t *testing.T) {
	for _, annotation := range []string{"", ",", "a", ",,a,"} {
		require.Empty(t, parseSeals(annotation), annotation)
	}
	require.Equal(t, seals{"a": {"": true}, "b": {"c": true}}, parseSeals("a=,x,b=c"))
	object := declare(teamA(), templateOf(t, "a", settings)).Objects[0]
	require.False(t, parseSeals("a=,x,b=c").has(&object))
}

func TestSealNamesWhatWasThereOnceUnderReport(t *testing.T) {
	reported := templateOf(t, "reported", settings, limits)
	reported.Spec.DriftPolicy = v1alpha1.DriftReport
	corrected := templateOf(t, "corrected", creator)
	declared := declare(teamA(), corrected, reported)
	sealed := func(plan Plan, result Result) []bool {
		read := parseSeals(Seal(plan, result))
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
	require.Equal(t, []bool{true, true}, sealed(plan, done(plan, "")))
	require.Equal(t, []bool{true, false}, sealed(plan, done(plan, "limits")), "what could not be applied was not there")
	require.Empty(t, Seal(plan, Result{}), "nor was anything before it is applied")

	declared.Namespace.Annotations[v1alpha1.SealAnnotation] = Seal(plan, done(plan, ""))
	plan = NewPlan(declared, index, Observed{})
	require.Equal(t, []bool{true, true}, sealed(plan, Result{}), "what is gone stays sealed")
	require.Empty(t, Seal(NewPlan(declare(teamA(), corrected), index, Observed{}), Result{}),
		"what is no longer declared does not")
}

func TestSealsAreWrittenBeforeWhatTheyNameIsDeleted(t *testing.T) {
	reported := templateOf(t, "reported", settings, limits)
	reported.Spec.DriftPolicy = v1alpha1.DriftReport
	declared := declare(teamA(), reported)
	ids := []ObjectID{declared.Objects[0].ID(), declared.Objects[1].ID()}
	change := func(i int) Change {
		return Change{Kind: ids[i].WithVersion("v1"), Name: ids[i].Name, Template: "reported"}
	}
	declared.Namespace.Annotations[v1alpha1.SealAnnotation] = seals{
		"other": {"a": true}, "reported": {sealOf(ids[0]): true, sealOf(ids[1]): true},
	}.String()
	var written []string
	var refusal error
	intents := newIntents(Plan{Declared: declared}, func(_ context.Context, seals string) error {
		written = append(written, seals)
		return refusal
	})
	refusal = errors.New("refused")
	require.ErrorIs(t, intents.toDelete(t.Context(), change(0)), refusal)
	refusal = nil
	require.NoError(t, intents.toDelete(t.Context(), change(0)))
	require.NoError(t, intents.toDelete(t.Context(), change(0), Change{Name: "unknown", Template: "reported"}),
		"nothing is left to write")
	require.NoError(t, intents.toDelete(t.Context(), change(1)))
	first := seals{"other": {"a": true}, "reported": {sealOf(ids[1]): true}}.String()
	require.Equal(t, []string{first, first, "other=a"}, written)
}

func TestObjectsThatWereToBeDeletedAreNotSealed(t *testing.T) {
	reported := templateOf(t, "reported", settings)
	reported.Spec.DriftPolicy = v1alpha1.DriftReport
	declared := declare(teamA(), reported)
	object := &declared.Objects[0]
	declared.Namespace.Annotations[v1alpha1.SealAnnotation] = seals{"reported": {sealOf(object.ID()): true}}.String()
	plan := Plan{Declared: declared, Changes: []Change{{
		Action: Configure, Kind: object.GroupVersionKind(), Name: object.GetName(), Template: "reported",
		Declared: object,
	}}}
	failed := Outcome{Change: plan.Changes[0], Failure: &Failure{err: errors.New("the connection was reset")}}
	require.NotEmpty(t, Seal(plan, Result{Outcomes: []Outcome{failed}}))
	failed.MaybeDeleted = true
	require.Empty(t, Seal(plan, Result{Outcomes: []Outcome{failed}}), "it comes back")
}
