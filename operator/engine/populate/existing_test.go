package populate

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestTheRecordOfExistingObjectsIsWrittenInAStableOrderAndReadBack(t *testing.T) {
	written := existing{
		map[string]map[string]bool{"+b": {"z": true, "a": true}, "+a.b": {"1x": true}},
		map[string]string{"c": "2", "a": "1"},
	}
	require.Equal(t, "*a=1,*c=2,+a.b=1x,+b=a.z", written.String())
	require.Equal(t, written, parseExisting(written.String()))
}

func TestInvalidRecordsOfExistingObjectsAreIgnored(t *testing.T) {
	for _, annotation := range []string{"", ",", "a", ",,a,", "=a"} {
		require.Equal(t, newExisting(), parseExisting(annotation), annotation)
	}
	require.Equal(t, map[string]map[string]bool{"a": {"": true}, "b": {"c": true}}, parseExisting("a=,x,b=c").byKey)
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
		require.False(t, read.has(&declared.Objects[0]), "its drift is corrected")
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

// Otherwise another client's RoleBinding could take the place of a populated one meanwhile, and would be kept.
func TestGrantsOfTemplatesThatAreIgnoredForAWhileStayInTheRecord(t *testing.T) {
	declared := populatedWith(t, templateOf(t, "a", rolling, settings))
	for name, test := range map[string]struct {
		templates []*v1alpha1.NamespaceTemplate
		inputs    Inputs
		optOut    string
		want      string
	}{
		"it cannot be rendered": {
			templates: []*v1alpha1.NamespaceTemplate{templateOf(t, "a", rolling, broken)}, want: "a",
		},
		"the namespace is exempt":     {inputs: Inputs{Exemptions: exempting("a")}, want: "a"},
		"the namespace is opted out":  {optOut: "a", want: "a"},
		"it selects other namespaces": {},
		"others are ignored":          {inputs: Inputs{Exemptions: exempting("b")}, optOut: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := declared.Namespace.DeepCopy()
			ns.Annotations[v1alpha1.OptOutAnnotation] = test.optOut
			plan := NewPlan(Declare(render.NewCache(), ns, test.templates, test.inputs), match.NewIndex(test.templates...),
				Observed{})
			recorded := parseExisting(ExistingObjects(plan, Result{}))
			require.Equal(t, test.want, recorded.populatedBy(declared.Objects[0].ID()))
			require.Empty(t, recorded.populatedBy(declared.Objects[1].ID()), "it grants nothing")
		})
	}
}

// Otherwise what users put in the place of objects meanwhile would be adopted, and would be kept when the template
// revokes it.
func TestObjectsThatCannotBeReadStayInTheRecord(t *testing.T) {
	other := strings.ReplaceAll(rolling, "name: owner", "name: other")
	unreadable := Observed{Unreadable: map[schema.GroupKind]error{}}
	for _, kind := range []schema.GroupKind{bindingKind, {Kind: "ConfigMap"}} {
		unreadable.Unreadable[kind] = errors.New("the list timed out")
	}
	before, without := templateOf(t, "a", rolling, settings), templateOf(t, "a", other, settings)
	for name, test := range map[string]struct {
		before, now *v1alpha1.NamespaceTemplate
		source      Source
	}{
		"their kinds cannot be listed":      {before: before, now: before},
		"also if one is no longer declared": {before: before, now: without},
		"their source cannot be copied": {
			before: copying(t), now: copying(t), source: Source{Failure: &Failure{err: errors.New("unknown")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := newExisting()
			for _, object := range declareFrom(NewSource(pullRef, pullSecret("x")), teamA(), test.before).Objects {
				record.add(populatedKey(test.before.Name), populatedDigest(object.ID()))
				record.add(adoptedKey(test.before.Name), populatedDigest(object.ID()))
			}
			ns := teamA()
			ns.Annotations[v1alpha1.ExistingAnnotation] = record.String()
			plan := NewPlan(declareFrom(test.source, ns, test.now), match.NewIndex(test.now), unreadable)
			for _, change := range plan.Changes {
				require.Equal(t, Unknown, change.Action)
			}
			require.Equal(t, record.String(), ExistingObjects(plan, Result{}))
		})
	}
}

func TestObjectsAreRemovedFromTheRecordBeforeTheyAreDeleted(t *testing.T) {
	reported := templateOf(t, "reported", settings, limits)
	reported.Spec.DriftPolicy = v1alpha1.DriftReport
	declared := declare(teamA(), reported)
	ids := []ObjectID{declared.Objects[0].ID(), declared.Objects[1].ID()}
	change := func(i int) Change {
		return Change{Kind: ids[i].WithVersion("v1"), Name: ids[i].Name, Template: "reported"}
	}
	record := existing{
		map[string]map[string]bool{"+other": {"a": true}},
		map[string]string{digestOf(ids[0]): "h", digestOf(ids[1]): "h"},
	}
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = record.String()
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
	delete(record.reported, digestOf(ids[0]))
	first := record.String()
	require.Equal(t, []string{first, first, "+other=a"}, written)
}

// An object that the record still lists would count as deleted by a person, and would not come back.
func TestNothingIsDeletedUntilTheRecordDoesNotListIt(t *testing.T) {
	reported := templateOf(t, "reported", settings)
	declared := declare(teamA(), reported)
	object := &declared.Objects[0]
	record := existing{reported: map[string]string{digestOf(object.ID()): "h"}}
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = record.String()
	observed := applied(t, *object)
	change := Change{
		Action: Prune, Kind: object.GroupVersionKind(), Name: object.GetName(), Template: "reported", Declared: object,
		Observed: observed,
	}
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(change.Kind, meta.RESTScopeNamespace)
	for name, remove := range map[string]func(*pass) Outcome{
		"pruned": func(p *pass) Outcome { return p.pruneAll(t.Context(), []Change{change})[0] },
		"revoked": func(p *pass) Outcome {
			return p.revokeDeclared(t.Context(), change, &Failure{err: errors.New("its Role is not applied")})
		},
		"replaced": func(p *pass) Outcome {
			change := change
			change.Action = Configure
			objects, err := p.resource(t.Context(), change.Kind, p.namespace)
			require.NoError(t, err)
			change.Declared.SetAnnotations(map[string]string{v1alpha1.ReplaceAnnotation: "true"})
			outcome, err := p.replace(t.Context(), objects, change, errors.New("it is immutable"))
			outcome.Failure = NewFailure(err, "team-a")
			return outcome
		},
	} {
		for _, refusal := range []error{errors.New("the API server is down"), nil} {
			client := metadatafake.NewSimpleMetadataClient(scheme, observed)
			p := &pass{
				Applier:   NewApplier(client, dynamicfake.NewSimpleDynamicClient(scheme), meta.ToRESTMapperWithContext(mapper), 1, nil),
				namespace: "team-a",
				existing: newExistingStore(Plan{Declared: declared}, func(context.Context, string) error {
					return refusal
				}),
			}
			outcome := remove(p)
			isDeleted := slices.ContainsFunc(client.Actions(), func(action kubetesting.Action) bool {
				return action.GetVerb() == "delete"
			})
			require.Equal(t, refusal == nil, isDeleted, name)
			require.Equal(t, isDeleted, outcome.Deleted, name)
			if refusal != nil {
				require.ErrorContains(t, outcome.Failure, "record that it is about to be deleted: the API server is down", name)
				require.Empty(t, client.Actions(), name)
			}
		}
	}
}

// The API server answers a deletion with 404 as well if it has just stopped serving the version that the plan knows.
func TestAnObjectOfAVersionThatIsNotServedIsNotPruned(t *testing.T) {
	object := declare(teamA(), templateOf(t, "a", settings)).Objects[0]
	change := Change{
		Action: Prune, Kind: object.GroupVersionKind(), Name: object.GetName(), Observed: applied(t, object),
	}
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(change.Kind, meta.RESTScopeNamespace)
	resource := schema.GroupResource{Resource: "configmaps"}
	for message, answer := range map[string]error{
		"": apierrors.NewNotFound(resource, object.GetName()),
		"the API server does not serve this version of the kind: the server could not find the requested resource": apierrors.
			NewGenericServerResponse(404, "delete", resource, object.GetName(), "404 page not found", 0, true),
	} {
		client := metadatafake.NewSimpleMetadataClient(scheme)
		client.PrependReactor("delete", "*", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, answer
		})
		p := &pass{
			Applier:   NewApplier(client, dynamicfake.NewSimpleDynamicClient(scheme), meta.ToRESTMapperWithContext(mapper), 1, nil),
			namespace: "team-a",
		}
		outcome := p.prune(t.Context(), change)
		require.Equal(t, message == "", outcome.Deleted)
		if message != "" {
			require.ErrorContains(t, outcome.Failure, message)
		}
	}
}

func TestObjectsThatNstplMayHaveDeletedAreNotRecordedAsExisting(t *testing.T) {
	reported := templateOf(t, "reported", settings)
	reported.Spec.DriftPolicy = v1alpha1.DriftReport
	declared := declare(teamA(), reported)
	object := &declared.Objects[0]
	record := existing{reported: map[string]string{digestOf(object.ID()): "h"}}
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = record.String()
	plan := Plan{Declared: declared, Changes: []Change{{
		Action: Configure, Kind: object.GroupVersionKind(), Name: object.GetName(), Template: "reported",
		Declared: object,
	}}}
	failed := Outcome{Change: plan.Changes[0], Failure: &Failure{err: errors.New("the connection was reset")}}
	require.NotEmpty(t, ExistingObjects(plan, Result{Outcomes: []Outcome{failed}}))
	failed.MaybeDeleted = true
	require.Empty(t, ExistingObjects(plan, Result{Outcomes: []Outcome{failed}}), "nstpl creates it again")
}

// What a person changed or deleted under driftPolicy Report stays as it is until a revision changes that object. The
// plan then says what is overwritten.
func TestARevisionOverwritesWhatReportLeftOnlyIfItChangesTheObject(t *testing.T) {
	before, same, next := templateOf(t, "a", settings), templateOf(t, "a", settings, limits),
		templateOf(t, "a", strings.ReplaceAll(settings, "blue", "red"))
	for _, template := range []*v1alpha1.NamespaceTemplate{before, same, next} {
		template.Spec.DriftPolicy = v1alpha1.DriftReport
	}
	first := NewPlan(declare(teamA(), before), match.NewIndex(before), Observed{})
	created := Result{Outcomes: []Outcome{{Change: first.Changes[0]}}}
	record := ExistingObjects(first, created)
	plan := func(template *v1alpha1.NamespaceTemplate, record, reported string, observed ...*metav1.PartialObjectMetadata) Plan {
		ns := teamA()
		ns.Annotations[v1alpha1.ExistingAnnotation] = record
		ns.Status.Conditions = []corev1.NamespaceCondition{{
			Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue,
			Message: "1 object of a; configmap/settings: drifted: " + reported,
		}}
		return NewPlan(declare(ns, template), match.NewIndex(template), Observed{Objects: observed})
	}
	const (
		deleted = "another client deleted it or removed its label; driftPolicy is Report"
		changed = "data.color changed by kubectl-edit; driftPolicy is Report"
	)
	kept := plan(same, record, deleted)
	require.Equal(t, LeaveAlone, kept.Changes[0].Action)
	require.Equal(t, record, ExistingObjects(kept, Result{}), "it stays in the record")

	again := plan(next, record, deleted)
	require.Equal(t, Create, again.Changes[0].Action)
	require.False(t, again.Changes[0].Drifted)
	require.Equal(t, "its declaration changed, so it overwrites what driftPolicy Report left: "+
		"another client deleted it or removed its label", again.Changes[0].Reason)
	findings := Findings(again, Result{Outcomes: []Outcome{{Change: again.Changes[0]}}})
	require.Len(t, findings, 1)
	require.Equal(t, FindingOverwritten, findings[0].Reason)
	require.Equal(t, Info, findings[0].Severity)

	failed := Result{Outcomes: []Outcome{{Change: again.Changes[0], Failure: &Failure{err: errors.New("refused")}}}}
	require.Equal(t, Create, plan(next, ExistingObjects(again, failed), deleted).Changes[0].Action, "it is tried again")
	done := Result{Outcomes: []Outcome{{Change: again.Changes[0]}}}
	require.Equal(t, LeaveAlone, plan(next, ExistingObjects(again, done), deleted).Changes[0].Action, "deleted again")

	object := first.Declared.Objects[0]
	drifted := applied(t, object, fieldpath.MakePathOrDie("data", "color"))
	require.Equal(t, LeaveAlone, plan(same, record, changed, drifted).Changes[0].Action)
	object.Hash = "other" // a user may remove the hash from the entry of nstpl
	unowned := applied(t, object, fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.HashAnnotation))
	require.Equal(t, LeaveAlone, plan(same, record, changed, unowned).Changes[0].Action)
	require.Equal(t, Configure, plan(next, record, changed, unowned).Changes[0].Action)
	overwritten := plan(next, record, changed, drifted).Changes[0]
	require.Equal(t, Configure, overwritten.Action)
	require.Equal(t, "data.color changed by kubectl-edit", overwritten.Overwrites)
}

func TestLacksObjects(t *testing.T) {
	declared := declare(teamA(), templateOf(t, "basics", settings, limits), templateOf(t, "grants", creator))
	plan := NewPlan(declared, match.NewIndex(), Observed{})
	var result Result
	var all []ObjectID
	for _, change := range pending(plan) {
		result.Outcomes = append(result.Outcomes, Outcome{Change: change})
		all = append(all, change.ID())
	}
	require.Len(t, all, 3)
	ns := teamA()
	require.False(t, LacksObjects(ns, nil), "nothing is recorded")
	ns.Annotations[v1alpha1.ExistingAnnotation] = ExistingObjects(plan, result)
	require.False(t, LacksObjects(ns, all))
	require.True(t, LacksObjects(ns, nil))
	for i := range all {
		require.True(t, LacksObjects(ns, slices.Delete(slices.Clone(all), i, i+1)), "without %s", all[i])
	}
	ns.Annotations[v1alpha1.ExistingAnnotation] = "*gone=1a2b"
	require.False(t, LacksObjects(ns, nil), "a deletion that is only reported is not urgent")
}

// The record of a namespace ends where its template does not declare the object, or corrects drift. The hash of the
// object then shows which declaration was applied, while it has the label that protects it.
func TestWithoutARecordOnlyTheAppliedDeclarationIsLeftToReport(t *testing.T) {
	template := templateOf(t, "a", settings)
	template.Spec.DriftPolicy = v1alpha1.DriftReport
	object := declare(teamA(), template).Objects[0]
	hash := fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.HashAnnotation)
	hidden := applied(t, object, hash)
	former := with(applied(t, object, hash), func(o *metav1.PartialObjectMetadata) {
		o.Annotations[v1alpha1.HashAnnotation] = "former"
	})
	replaced := with(theirs(&object), func(o *metav1.PartialObjectMetadata) {
		o.Annotations = map[string]string{v1alpha1.HashAnnotation: object.Hash}
	})
	lost := func(object *metav1.PartialObjectMetadata) Observed {
		return Observed{Lost: map[ObjectID]*metav1.PartialObjectMetadata{render.IDOf(object): object}}
	}
	replacement := lost(hidden)
	replacement.Others = []*metav1.PartialObjectMetadata{replaced}
	for name, test := range map[string]struct {
		observed Observed
		want     Action
	}{
		"this declaration":                 {Observed{Objects: []*metav1.PartialObjectMetadata{hidden}}, LeaveAlone},
		"another declaration":              {Observed{Objects: []*metav1.PartialObjectMetadata{former}}, Configure},
		"this declaration, and deleted":    {lost(hidden), LeaveAlone},
		"another declaration, and deleted": {lost(former), Create},
		"replaced":                         {replacement, Create},
	} {
		t.Run(name, func(t *testing.T) {
			plan := NewPlan(declare(teamA(), template), match.NewIndex(template), test.observed)
			change := plan.Changes[0]
			require.Equal(t, test.want, change.Action, change.Reason)
			recorded := parseExisting(ExistingObjects(plan, Result{}))
			require.Equal(t, test.want == LeaveAlone, recorded.has(&object), "only what was applied is recorded")
		})
	}
}

// Otherwise a user could leave a template, create a RoleBinding of the same name, and keep it once the template that
// selects the namespace again revokes it.
func TestGrantsOfFormerTemplatesAreNotAdoptedLater(t *testing.T) {
	template := templateOf(t, "a", rolling, settings)
	populated := populatedWith(t, template)
	ns := populated.Namespace
	record := func(plan Plan, outcomes ...Outcome) {
		ns.Annotations[v1alpha1.ExistingAnnotation] = ExistingObjects(plan, Result{Outcomes: outcomes})
	}
	outside := func() Plan { return NewPlan(declare(ns), match.NewIndex(template), Observed{}) }
	record(outside())
	former := newExisting()
	former.add(formerKey, populatedDigest(populated.Objects[0].ID()))
	require.Equal(t, former.String(), ns.Annotations[v1alpha1.ExistingAnnotation])
	require.False(t, MissesGrants(outside().Declared, Observed{}), "what users create outside is their own")
	ns.Annotations[v1alpha1.ExistingAnnotation] = RecordedGrants(ns)
	record(outside())

	object := theirs(&populated.Objects[0])
	again := NewPlan(declare(ns, template), match.NewIndex(template),
		Observed{Others: []*metav1.PartialObjectMetadata{object, theirs(&populated.Objects[1])}})
	require.Equal(t, "exists but is not managed by nstpl yet", again.Changes[0].Reason)
	require.True(t, again.Changes[0].replacesOwn(object))
	require.False(t, again.Changes[1].replacesOwn(theirs(&populated.Objects[1])), "it grants nothing")
	record(again, Outcome{Change: again.Changes[0]})
	require.NotContains(t, ns.Annotations[v1alpha1.ExistingAnnotation], formerKey)
}

func TestAdoptedGrantsOfFormerTemplatesAreAdoptedAgain(t *testing.T) {
	template := templateOf(t, "a", rolling)
	ns := teamA()
	digest := populatedDigest(declare(ns, template).Objects[0].ID())
	ns.Annotations[v1alpha1.ExistingAnnotation] = existing{byKey: map[string]map[string]bool{
		populatedKey("a"): {digest: true}, adoptedKey("a"): {digest: true},
	}}.String()
	require.Empty(t, ExistingObjects(NewPlan(declare(ns), match.NewIndex(template), Observed{}), Result{}))
}

func TestTheRecordHasRoomForTheGrantsOfFormerTemplates(t *testing.T) {
	many := newExisting()
	for i := range 5000 {
		name := strconv.Itoa(i)
		many.add(populatedKey(name), populatedDigest(ObjectID{GroupKind: bindingKind, Name: name}))
	}
	ns := teamA()
	ns.Annotations[v1alpha1.ExistingAnnotation] = many.String()
	require.Less(t, len(ExistingObjects(NewPlan(declare(ns), match.NewIndex(), Observed{}), Result{})), 16<<10)
}

// A namespace may have thousands of objects that no template declares. Only Roles and RoleBindings are looked up in the
// record.
func TestObjectsOfUsersThatGrantNothingCostLittle(t *testing.T) {
	template := templateOf(t, "a", settings)
	declared := populatedWith(t, template)
	index, object := match.NewIndex(template), theirs(&declared.Objects[0])
	object.Name = "other"
	cost := func(others int) float64 {
		observed := Observed{Others: slices.Repeat([]*metav1.PartialObjectMetadata{object}, others)}
		return testing.AllocsPerRun(5, func() { NewPlan(declared, index, observed) })
	}
	require.Less(t, cost(1000)-cost(0), 1000.0)
}
