package populate

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// In a namespace that a tree does not manage, no undeclared objects are deleted if a template of the tree is
// authoritative for their kind, even if another template would delete them.
func TestTemplatesOfATreeDeleteUndeclaredObjectsOnlyInItsNamespaces(t *testing.T) {
	t.Parallel()
	template := func(name, tree string, policy v1alpha1.AuthoritativePolicy) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		template.Spec.Authoritative, template.Spec.AuthoritativePolicy = []v1alpha1.GroupKind{{Kind: "ConfigMap"}},
			policy
		if tree != "" {
			template.Labels = map[string]string{v1alpha1.TreeLabel: tree}
		}
		return template
	}
	plain, tree := template("plain", "", v1alpha1.AuthoritativeDelete),
		template("corp", "corp", v1alpha1.AuthoritativeDelete)
	for name, test := range map[string]struct {
		templates []*v1alpha1.NamespaceTemplate
		inTree    bool
		action    Action
		reported  bool
	}{
		"template of the tree, namespace in the tree": {[]*v1alpha1.NamespaceTemplate{tree}, true, Prune, true},
		"template of the tree, namespace outside":     {[]*v1alpha1.NamespaceTemplate{tree}, false, LeaveAlone, true},
		"plain template, namespace outside":           {[]*v1alpha1.NamespaceTemplate{plain}, false, Prune, true},
		"both templates, namespace outside": {
			[]*v1alpha1.NamespaceTemplate{plain, tree}, false, LeaveAlone, true,
		},
		"both templates in the other order, namespace outside": {
			[]*v1alpha1.NamespaceTemplate{tree, plain}, false, LeaveAlone, true,
		},
		"authoritativePolicy Report, namespace in the tree": {[]*v1alpha1.NamespaceTemplate{template("corp", "corp",
			v1alpha1.AuthoritativeReport)}, true, LeaveAlone, true},
		"no template": {nil, false, LeaveAlone, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			if test.inTree {
				ns.Annotations = map[string]string{v1alpha1.InTreeAnnotation: "true"}
			}
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
			object.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
			declared := Declared{Namespace: ns, Templates: test.templates}
			change := unlabelled(declared, object)
			require.Equal(t, test.action, change.Action, change.Reason)
			require.Equal(t, test.reported, change.Undeclared)
			require.Equal(t, test.action == Prune, deletes(declared, schema.GroupKind{Kind: "ConfigMap"}))
		})
	}
}

// An object that a deleted template left is undeclared, also if there is a template of that name again.
func TestObjectsOfAnEarlierTemplateOfTheSameNameAreUndeclared(t *testing.T) {
	t.Parallel()
	orphan := applied(t, declare(teamA(), templateOf(t, "a", settings)).Objects[0])
	again := templateOf(t, "a", limits)
	again.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	index := match.NewIndex(again)
	declared := declare(teamA(), again)
	changes := NewPlan(declared, index, Observed{Objects: []*metav1.PartialObjectMetadata{orphan}}).Changes
	require.Len(t, changes, 2)
	require.Equal(t, Prune, changes[1].Action, changes[1].Reason)
	require.True(t, changes[1].Undeclared)
}

// An opt-out or an exemption from a template keeps its objects, whether it created or adopted them.
func TestAdoptedObjectsAreKeptAfterAnOptOut(t *testing.T) {
	t.Parallel()
	adopted := applied(t, declare(teamA(), templateOf(t, "a", settings)).Objects[0])
	adopted.Annotations[v1alpha1.AdoptedAnnotation] = "true"
	authority := templateOf(t, "b", limits)
	authority.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	index := match.NewIndex(templateOf(t, "a", settings), authority)
	reset := adopted.DeepCopy()
	reset.ManagedFields = nil
	for _, object := range []*metav1.PartialObjectMetadata{adopted, reset} {
		for optOut, want := range map[string]Action{"a": LeaveAlone, "other": Prune} {
			ns := teamA()
			ns.Annotations[v1alpha1.OptOutAnnotation] = optOut
			plan := NewPlan(declare(ns, authority), index, Observed{Objects: []*metav1.PartialObjectMetadata{object}})
			require.Len(t, plan.Changes, 2)
			require.Equal(t, want, plan.Changes[1].Action, plan.Changes[1].Reason)
		}
	}
}

// A plan is the same without the objects of other clients whose kinds it does not consider, and another one without any
// of the others.
func TestPlansDependOnForeignObjectsOfTheConsideredKinds(t *testing.T) {
	t.Parallel()
	declaring, exempt, authority := templateOf(t, "a", settings), templateOf(t, "b", limits), templateOf(t, "c")
	authority.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "Secret"}}
	ns := populatedWith(t, templateOf(t, "gone", rolling)).Namespace
	exemptions := exempting("b", ObjectID{GroupKind: schema.GroupKind{Kind: "LimitRange"}, Name: "limits"})
	templates := []*v1alpha1.NamespaceTemplate{declaring, exempt, authority}
	declared := Declare(render.NewCache(), ns, templates, Inputs{Exemptions: exemptions})
	considered := declared.ConsideredKinds()

	var others []*metav1.PartialObjectMetadata
	for _, object := range declare(teamA(), templateOf(t, "theirs", settings, limits, rolling,
		"{apiVersion: v1, kind: Secret, metadata: {name: s}}", "{apiVersion: v1, kind: Service, metadata: {name: s}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}}")).Objects {
		others = append(others, theirs(&object))
	}
	plan := func(others []*metav1.PartialObjectMetadata) []Change {
		return NewPlan(declared, match.NewIndex(templates...), Observed{Others: others}).Changes
	}
	var ignored []string
	for i, object := range others {
		kind, without := object.GroupVersionKind().GroupKind(), slices.Delete(slices.Clone(others), i, i+1)
		if slices.Contains(considered, kind) {
			require.NotEqual(t, plan(others), plan(without), kind)
		} else {
			require.Equal(t, plan(others), plan(without), kind)
			ignored = append(ignored, kind.Kind)
		}
	}
	require.Equal(t, []string{"Service", "ServiceAccount"}, ignored)
}
