package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// backedUp returns an object as backup tools such as Velero restore it: without what the API server sets.
func backedUp(stored *unstructured.Unstructured) *unstructured.Unstructured {
	object := stored.DeepCopy()
	metadata := map[string]any{"name": stored.GetName()}
	for _, field := range []string{"namespace", "labels", "annotations"} {
		if value, found, _ := unstructured.NestedFieldCopy(stored.Object, "metadata", field); found {
			metadata[field] = value
		}
	}
	object.Object["metadata"] = metadata
	delete(object.Object, "status")
	delete(object.Object, "spec") // only namespaces have one here, and the API server sets it
	return object
}

// restore creates an object, or makes an existing one as in the backup, as Velero does with
// --existing-resource-policy=update.
func (s *testScope) restore(object *unstructured.Unstructured) {
	s.t.Helper()
	err := s.client.Create(s.t.Context(), object.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		body, err := object.MarshalJSON()
		require.NoError(s.t, err)
		require.NoError(s.t, s.client.Patch(s.t.Context(), object.DeepCopy(),
			client.RawPatch(types.MergePatchType, body)))
		return
	}
	require.NoError(s.t, err)
}

// A restored namespace has its creator and its objects, and the operator prunes and keeps the same objects as before.
func TestRestoredNamespaceEndsAsBefore(t *testing.T) {
	t.Parallel()
	for name, isPopulatedFirst := range map[string]bool{
		"objects restored at once": false, "objects restored after the operator populated": true,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			const label = "example.com/restored"
			shared := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {declared: a}\n"
			owner := "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: " + replacedName + "-owner}\n" +
				"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n" +
				"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: $(CREATOR)}]\n"
			template := s.createTemplate("defaults", documents(configMap(replacedName+"-settings", "v"), shared, owner),
				func(template *v1alpha1.NamespaceTemplate) {
					template.Spec.Namespaces = selectLabel(label, s.id)
					template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				})
			ns := s.createNamespace("a", withCreator(s.name("jane")))
			s.createObjects(ns.Name, documents("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {mine: b}\n",
				configMap("mine", "c")))
			s.patchLabel(ns, label, s.id)
			s.waitPopulated(ns)
			bound := "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: " + replacedName + "-owner}\n" +
				"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: " + s.name("jane") + "}]\n"
			adopted := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared, annotations: " +
				"{policy.nstpl.dev/adopted: \"true\"}}\ndata: {declared: a, mine: b}\n"
			before := documents(configMap(replacedName+"-settings", "v"), configMap("mine", "c"), adopted, bound)
			s.waitPresent(ns, before)

			var backup []*unstructured.Unstructured
			for _, like := range parseYAML(t, before) {
				backup = append(backup, backedUp(s.mustGet(ns, like)))
			}
			stored := &unstructured.Unstructured{}
			stored.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), stored))
			namespace := backedUp(stored)
			s.delete(ns)
			s.waitDeleted(ns)

			require.NoError(t, s.client.Create(t.Context(), namespace.DeepCopy()))
			if isPopulatedFirst {
				s.waitPopulated(ns)
			}
			for _, object := range backup {
				s.restore(object)
			}
			s.waitPopulated(ns)
			s.waitPresent(ns, before)
			restored := &corev1.Namespace{}
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), restored))
			require.Equal(t, s.name("jane"), restored.Annotations[v1alpha1.CreatorAnnotation])
			require.NotContains(t, s.mustGet(ns, parseYAML(t, configMap(replacedName+"-settings", "v"))[0]).GetAnnotations(),
				v1alpha1.AdoptedAnnotation)

			s.delete(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: template.Name}})
			s.waitAbsent(ns, documents(configMap(replacedName+"-settings", "v"), bound))
			s.waitPresent(ns, documents(configMap("mine", "c"),
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {mine: b}\n"))
		})
	}
}
