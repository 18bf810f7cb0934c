package reduce

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestNamespace(t *testing.T) {
	namespace := func() *corev1.Namespace {
		return &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: "team-a", UID: "uid", ResourceVersion: "5", Finalizers: []string{"example.com/wait"},
				Labels:        map[string]string{corev1.LabelMetadataName: "team-a"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
				// JSON patches test that a namespace has annotations or none, so all of them are kept.
				Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}"},
			},
			Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{
				{Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue, Reason: "Populated"},
			}},
		}
	}
	want := namespace()
	want.ManagedFields = nil
	reduced, err := Namespace(namespace())
	require.NoError(t, err)
	require.Equal(t, want, reduced)
}

func TestTemplate(t *testing.T) {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
		Name: "policies", UID: "uid", ResourceVersion: "5", Generation: 2,
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: "{}", v1alpha1.RequirePermissionAnnotation: "true",
		},
		Finalizers: []string{v1alpha1.DeletionFinalizer},
	}}
	template.Spec = v1alpha1.NamespaceTemplateSpec{
		Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{"tier": "test"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}},
		}},
		Templates:      []runtime.RawExtension{{Raw: []byte(`{"kind":"Role"}`)}},
		DeletionPolicy: v1alpha1.DeletionDelete, Overlays: []v1alpha1.Overlay{{Name: "production"}},
	}
	template.Status = v1alpha1.NamespaceTemplateStatus{
		ObservedGeneration: 2, Kinds: []v1alpha1.GroupKind{{Kind: "Role"}},
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Populated"}},
		Revisions:  []v1alpha1.TemplateRevision{{Name: "policies-1", Revision: 1, State: v1alpha1.RolloutComplete}},
	}
	want := template.DeepCopy()
	want.ManagedFields = nil
	delete(want.Annotations, corev1.LastAppliedConfigAnnotation)
	reduced, err := Template(template)
	require.NoError(t, err)
	require.Equal(t, want, reduced)
}
