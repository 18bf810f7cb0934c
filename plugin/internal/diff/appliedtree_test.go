package diff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// A tree brings a namespace no revision of a template that a paused rollout keeps from it, unless it changes the spec
// of the template: what the earlier revision declares is not deleted.
func TestATreeDoesNotEndRolloutsOfOtherTemplates(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	template := &v1alpha1.NamespaceTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: templateKind.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: "t", UID: "t", Generation: 2, CreationTimestamp: created},
	}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	template.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
	template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	template.Status = v1alpha1.NamespaceTemplateStatus{
		ObservedGeneration: 2,
		Conditions:         []metav1.Condition{{Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionTrue}},
		Revisions: []v1alpha1.TemplateRevision{
			{Name: "t-2", Revision: 2, Generation: 2, StartTime: created, State: v1alpha1.RolloutPaused},
			{Name: "t-1", Revision: 1, Generation: 1, StartTime: created, State: v1alpha1.RolloutComplete},
		},
	}
	stored := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.OperatorNamespace, Name: "t-1",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(template, templateKind)},
	}}
	stored.Data.Raw = []byte(`{"spec": {"namespaces": {"labelSelector": {}}, "deletionPolicy": "Delete"}}`)
	c := &cluster.Cluster{Apps: fake.NewClientset(stored).AppsV1()}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "n", UID: "n", CreationTimestamp: created, Labels: map[string]string{hierarchy.DepthLabel("root"): "0"},
	}}
	space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{
		Name: "root", Labels: map[string]string{v1alpha1.TreeLabel: "root"},
	}}
	live := liveObjects{
		templateKind: {"t": asUnstructured(t, template)}, namespaceKind: {"n": asUnstructured(t, ns)},
		policySpaceKind: {"root": asUnstructured(t, space)},
	}
	declaring := func(policy v1alpha1.DeletionPolicy) *unstructured.Unstructured {
		typed := template.DeepCopy()
		typed.Spec.DeletionPolicy, typed.Spec.DriftPolicy = policy, v1alpha1.DriftCorrect // the default
		typed.Spec.Rollout = nil                                                          // trees do not declare it
		declared := asUnstructured(t, typed)
		delete(declared.Object, "status")
		return declared
	}
	for name, test := range map[string]struct {
		declared []*unstructured.Unstructured
		want     v1alpha1.DeletionPolicy
	}{
		"not declared": {nil, v1alpha1.DeletionDelete},
		"unchanged":    {[]*unstructured.Unstructured{declaring(v1alpha1.DeletionOrphan)}, v1alpha1.DeletionDelete},
		"changed":      {[]*unstructured.Unstructured{declaring("Other")}, "Other"},
	} {
		t.Run(name, func(t *testing.T) {
			applied, err := live.apply("root", test.declared, nil)
			require.NoError(t, err)
			require.Len(t, applied.namespaces, 1)
			require.Empty(t, applied.indexTemplates(t.Context(), c))
			matched := applied.index.Match(applied.namespaces[0])
			require.Len(t, matched, 1)
			require.Equal(t, test.want, matched[0].Spec.DeletionPolicy)
		})
	}
}

func asUnstructured(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: content}
}
