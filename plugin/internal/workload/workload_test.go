package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestPodTemplate(t *testing.T) {
	t.Parallel()
	spec := map[string]any{"containers": []any{map[string]any{"name": "a"}}}
	template := map[string]any{"spec": spec}
	for name, test := range map[string]struct {
		object map[string]any
		want   any
	}{
		"a pod": {map[string]any{"kind": "Pod", "spec": spec}, map[string]any{"kind": "Pod", "spec": spec}},
		"a Deployment": {
			map[string]any{"kind": "Deployment", "spec": map[string]any{"template": template}}, template,
		},
		"a CronJob": {map[string]any{"kind": "CronJob", "spec": map[string]any{
			"jobTemplate": map[string]any{"spec": map[string]any{"template": template}},
		}}, template},
		"a PodTemplate": {map[string]any{"kind": "PodTemplate", "template": template}, template},
	} {
		require.Equal(t, test.want, PodTemplate(&unstructured.Unstructured{Object: test.object}), name)
	}
	for _, other := range []map[string]any{
		{"kind": "ConfigMap"},
		{"kind": "NodePool", "spec": map[string]any{"template": map[string]any{
			"spec": map[string]any{"requirements": []any{}},
		}}},
	} {
		require.Nil(t, PodTemplate(&unstructured.Unstructured{Object: other}), other["kind"])
	}
}

// A claim has the place of a volume with its name.
func TestAddClaims(t *testing.T) {
	t.Parallel()
	set := &unstructured.Unstructured{Object: map[string]any{
		"kind": "StatefulSet", "metadata": map[string]any{"name": "db"}, "spec": map[string]any{
			"volumeClaimTemplates": []any{map[string]any{"metadata": map[string]any{"name": "data"}}},
		},
	}}
	pod := &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data"}, {Name: "tmp"}}}
	AddClaims(pod, set)
	require.Len(t, pod.Volumes, 2)
	require.Equal(t, "tmp", pod.Volumes[0].Name)
	require.Equal(t, "data-db-0", pod.Volumes[1].PersistentVolumeClaim.ClaimName)

	set.SetKind("Deployment")
	pod = &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data"}}}
	AddClaims(pod, set)
	require.Equal(t, []corev1.Volume{{Name: "data"}}, pod.Volumes)
}

func TestController(t *testing.T) {
	t.Parallel()
	known := Controller(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	require.Equal(t, "system:serviceaccount:kube-system:replicaset-controller", known.Name)
	require.Contains(t, known.Groups, "system:serviceaccounts:kube-system")
	unknown := Controller(schema.GroupKind{Group: "example.com", Kind: "Deployment"})
	require.Empty(t, unknown.Name)
	require.NotContains(t, unknown.Groups, "system:serviceaccounts:kube-system")
}
