package populate

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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
