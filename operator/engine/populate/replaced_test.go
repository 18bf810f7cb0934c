package populate

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

const rolling = `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: owner},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}`

// populatedWith returns a declaration whose namespace records that it had the declared objects.
func populatedWith(t *testing.T, templates ...*v1alpha1.NamespaceTemplate) Declared {
	t.Helper()
	declared := declare(teamA(), templates...)
	plan := NewPlan(declared, match.NewIndex(templates...), Observed{})
	var result Result
	for _, change := range pending(plan) {
		result.Outcomes = append(result.Outcomes, Outcome{Change: change})
	}
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = ExistingObjects(plan, result)
	return declared
}

// theirs returns the metadata of an object that another client created under the name of a declared one.
func theirs(declared *Object) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: declared.GetName(), UID: "theirs"}}
	object.SetGroupVersionKind(declared.GroupVersionKind())
	return object
}

func TestWhatReplacesAPopulatedObjectIsNotAdopted(t *testing.T) {
	template := templateOf(t, "a", rolling)
	template.Status.Kinds = []v1alpha1.GroupKind{{Group: bindingKind.Group, Kind: bindingKind.Kind}}
	index := match.NewIndex(template)
	fresh, populated := declare(teamA(), template), populatedWith(t, template)
	object := theirs(&populated.Objects[0])
	others := Observed{Others: []*metav1.PartialObjectMetadata{object}}

	before := NewPlan(fresh, index, others).Changes[0]
	require.False(t, before.replacesOwn(object), "it existed before the template selected the namespace")
	require.False(t, before.Drifted)

	after := NewPlan(populated, index, others).Changes[0]
	require.True(t, after.replacesOwn(object))
	require.True(t, after.Drifted)
	require.Equal(t, Create, after.Action)

	forged := theirs(&populated.Objects[0])
	forged.Annotations = map[string]string{v1alpha1.AdoptedAnnotation: "true"}
	require.True(t, after.replacesOwn(forged), "every user may write that on an object without the label")
	adopted := forged.DeepCopy()
	adopted.Labels = map[string]string{v1alpha1.TemplateNameLabel: "a"}
	require.False(t, after.replacesOwn(adopted), "admission protects the record of an adopted object")

	outcome := Outcome{Change: before, Written: adopted}
	fresh.Namespace.Annotations[v1alpha1.ExistingAnnotation] = ExistingObjects(
		NewPlan(fresh, index, others), Result{Outcomes: []Outcome{outcome}})
	again := NewPlan(fresh, index, others).Changes[0]
	require.False(t, again.replacesOwn(object), "the namespace records that the object in this place was adopted")
	require.False(t, again.Drifted)
	delete(fresh.Namespace.Annotations, v1alpha1.ExistingAnnotation)

	wasLost := map[ObjectID]*metav1.PartialObjectMetadata{render.IDOf(object): {}}
	lost := NewPlan(fresh, index, Observed{Lost: wasLost}).Changes[0]
	require.True(t, lost.replacesOwn(object), "the operator saw that its object was deleted")
}

func TestRevokedGrantsThatWereReplacedArePruned(t *testing.T) {
	template := templateOf(t, "a", rolling, settings)
	template.Status.Kinds = []v1alpha1.GroupKind{{Group: bindingKind.Group, Kind: bindingKind.Kind}, {Kind: "ConfigMap"}}
	populated := populatedWith(t, template)
	record := populated.Namespace.Annotations[v1alpha1.ExistingAnnotation]
	require.False(t, MissesGrants(populated, Observed{}), "all are declared")

	var objects []*metav1.PartialObjectMetadata
	for i := range populated.Objects {
		objects = append(objects, theirs(&populated.Objects[i]))
	}
	revoked := templateOf(t, "a", limits)
	revoked.Status.Kinds = template.Status.Kinds
	declared := declare(teamA(), revoked)
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = record
	require.True(t, MissesGrants(declared, Observed{}))
	require.False(t, MissesGrants(declared, Observed{Objects: objects}), "what has the label is pruned anyway")

	plan := NewPlan(declared, match.NewIndex(revoked), Observed{Others: objects})
	require.Len(t, plan.Changes, 2, "the template's new object, and the RoleBinding; other kinds grant nothing")
	prune := plan.Changes[1]
	require.Equal(t, Prune, prune.Action)
	require.Equal(t, bindingKind, prune.Kind.GroupKind())
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = ExistingObjects(plan, Result{})
	require.True(t, MissesGrants(declared, Observed{}), "it is recorded until it is deleted")
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = ExistingObjects(plan,
		Result{Outcomes: []Outcome{{Change: prune, Deleted: true}}})
	require.False(t, MissesGrants(declared, Observed{}))

	// Nothing is deleted if the template does not exist any more, but it is reported.
	declared.Namespace.Annotations[v1alpha1.ExistingAnnotation] = record
	declared.Templates, declared.Objects = nil, nil
	plan = NewPlan(declared, match.NewIndex(), Observed{Others: objects})
	findings := Findings(plan, Result{})
	require.Len(t, findings, 1)
	require.Equal(t, FindingGrantStays, findings[0].Reason)
}

// While the place of a namespace is unknown, a grant that another client created in place of a template's stays, and so
// does the record by which it is pruned later.
func TestAReplacedGrantStaysRecordedWhileItsNamespaceIsMisplaced(t *testing.T) {
	template := templateOf(t, "a", rolling)
	template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{
		MatchLabels: map[string]string{"corp" + v1alpha1.DepthLabelSuffix: "1"},
	}
	populated := populatedWith(t, template)
	object, ns := theirs(&populated.Objects[0]), teamA()
	record := populated.Namespace.Annotations[v1alpha1.ExistingAnnotation]
	ns.Annotations[v1alpha1.ExistingAnnotation] = record
	index := match.NewIndex(template)
	plan := NewPlan(declare(ns), index, Observed{Others: []*metav1.PartialObjectMetadata{object}})
	require.Equal(t, Prune, plan.Changes[0].Action)
	plan = plan.WithoutDeletions(index)
	require.Empty(t, plan.Changes)
	require.Equal(t, record, ExistingObjects(plan, Result{}))
}

// An author of templates who may delete Roles declares one, drops it, and would have the RoleBinding of another client
// deleted if both had the same digest: 32 bits of FNV are the same for these names.
func TestOnlyTheRecordedGrantIsPruned(t *testing.T) {
	role := `{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: role-188408}}`
	victim := ObjectID{GroupKind: bindingKind, Name: "admins-46280"}
	template := templateOf(t, "a", role, rolling)
	template.Status.Kinds = []v1alpha1.GroupKind{
		{Group: bindingKind.Group, Kind: bindingKind.Kind}, {Group: roleKind.Group, Kind: roleKind.Kind},
	}
	populated := populatedWith(t, template)
	require.Equal(t, digestOf(populated.Objects[0].ID()), digestOf(victim))
	dropped := templateOf(t, "a", rolling)
	dropped.Status.Kinds = template.Status.Kinds
	declared := declare(teamA(), dropped)
	declared.Namespace.Annotations = populated.Namespace.Annotations
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: victim.Name, UID: "theirs"}}
	object.SetGroupVersionKind(bindingKind.WithVersion("v1"))
	plan := NewPlan(declared, match.NewIndex(dropped), Observed{Others: []*metav1.PartialObjectMetadata{object}})
	require.False(t, plan.has(victim), "%v", plan.Changes)
}
