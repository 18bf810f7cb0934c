package populate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// protectedConfigMap returns a ConfigMap of a template that protects it from deletion.
func protectedConfigMap(template *v1alpha1.NamespaceTemplate) Object {
	return Object{Template: template, Hash: "hash", Unstructured: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{
			"name": "settings", "namespace": "a", "labels": map[string]any{v1alpha1.TemplateNameLabel: template.Name},
			"annotations": map[string]any{v1alpha1.DeletionProtectionAnnotation: "true"},
		},
	}}}
}

func TestProtectedObjectsAreKeptIfTheirTemplateProtectsThem(t *testing.T) {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	protection := fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.DeletionProtectionAnnotation)
	object := protectedConfigMap(template)
	withheld := Declared{Withheld: []Withheld{{Object: object}}}
	tests := map[string]struct {
		declared Declared
		observed *metav1.PartialObjectMetadata
		action   Action
		kept     bool
	}{
		"protected by its template": {observed: applied(t, object), action: Prune, kept: true},
		"protected by a user":       {observed: applied(t, object, protection), action: Prune},
		"no longer protected": {action: Prune, observed: with(applied(t, object, protection),
			func(o *metav1.PartialObjectMetadata) {
				delete(o.Annotations, v1alpha1.DeletionProtectionAnnotation)
			})},
		"with another value": {action: Prune, observed: with(applied(t, object), func(o *metav1.PartialObjectMetadata) {
			o.Annotations[v1alpha1.DeletionProtectionAnnotation] = "false"
		})},
		"not pruned anyway":                     {observed: applied(t, object), action: LeaveAlone},
		"being deleted, but it grants rights":   {observed: applied(t, object), action: Empty},
		"withheld, since its Role is another's": {declared: withheld, observed: applied(t, object), action: Prune},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			change := Change{
				Action: test.action, Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Name: "settings",
				Template: "a", Reason: "template a no longer declares it", Observed: test.observed,
			}
			got := keepProtected(test.declared, change)
			if !test.kept {
				require.Equal(t, change, got)
				return
			}
			require.Equal(t, LeaveAlone, got.Action)
			require.True(t, got.Protected)
			findings := Findings(Plan{Changes: []Change{got}}, Result{})
			require.Len(t, findings, 1)
			require.Equal(t, FindingProtected, findings[0].Reason)
			require.Equal(t, "configmap/settings: is kept, because it is protected from deletion (template a no longer "+
				"declares it): to have it deleted, a user with the verb unprotect on it must remove its annotation "+
				"policy.nstpl.dev/deletion-protection", findings[0].String())
		})
	}
}

// An object that a template protected stays protected when another template, or a later revision, declares it without
// the annotation. Only the value "false" and users who may remove the annotation end that.
func TestProtectionIsKeptUntilItIsDeclaredFalse(t *testing.T) {
	protecting := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	declaring := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	protection := fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.DeletionProtectionAnnotation)
	before, silent := protectedConfigMap(protecting), protectedConfigMap(declaring)
	disclaiming := protectedConfigMap(declaring)
	silent.SetAnnotations(map[string]string{"example.com/a": "v"})
	disclaiming.SetAnnotations(map[string]string{v1alpha1.DeletionProtectionAnnotation: "false"})
	unprotected := applied(t, before, protection)
	delete(unprotected.Annotations, v1alpha1.DeletionProtectionAnnotation)
	for name, test := range map[string]struct {
		declared    Object
		observed    *metav1.PartialObjectMetadata
		isProtected bool
	}{
		"protected by another template": {silent, applied(t, before), true},
		"the declaration removes it":    {disclaiming, applied(t, before), false},
		"protected by a user":           {silent, applied(t, before, protection), false},
		"a user removed the protection": {silent, unprotected, false},
		"does not exist":                {silent, nil, false},
		"the declaration also protects": {protectedConfigMap(declaring), applied(t, before), true},
	} {
		t.Run(name, func(t *testing.T) {
			observed := Observed{}
			if test.observed != nil {
				observed.Objects = []*metav1.PartialObjectMetadata{test.observed}
			}
			content := test.declared.DeepCopy()
			declared := Declared{Namespace: &corev1.Namespace{}, Objects: []Object{test.declared}}
			plan := NewPlan(declared, match.NewIndex(), observed)
			require.Len(t, plan.Changes, 1)
			require.Equal(t, test.isProtected, isProtected(plan.Changes[0].Declared))
			require.Equal(t, content, test.declared.Unstructured, "the cached declaration changed")
			if !test.isProtected || test.observed == nil {
				return
			}
			again := NewPlan(plan.Declared, match.NewIndex(), Observed{
				Objects: []*metav1.PartialObjectMetadata{applied(t, *plan.Changes[0].Declared)},
			})
			require.Equal(t, Unchanged, again.Changes[0].Action, again.Changes[0].Reason)
		})
	}
}

// An object whose declaration protects it is not deleted to be recreated. A RoleBinding is, so that its old grant does
// not stay.
func TestProtectedObjectsAreNotReplaced(t *testing.T) {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	object := protectedConfigMap(template)
	observed := applied(t, object)
	replaceable := object
	replaceable.Unstructured = object.DeepCopy()
	replaceable.SetAnnotations(map[string]string{
		v1alpha1.ReplaceAnnotation: "true", v1alpha1.DeletionProtectionAnnotation: "true",
	})
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	require.ErrorContains(t, MayReplace(Change{Kind: kind, Declared: &replaceable}, observed),
		"its declaration protects it from deletion")
	replaceable.SetAnnotations(map[string]string{v1alpha1.ReplaceAnnotation: "true"})
	require.NoError(t, MayReplace(Change{Kind: kind, Declared: &replaceable}, observed))
	binding := rbacv1.SchemeGroupVersion.WithKind("RoleBinding")
	require.NoError(t, MayReplace(Change{Kind: binding, Declared: &object}, observed))
}
