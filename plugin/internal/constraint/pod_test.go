package constraint

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/workload"
)

func podIn(t *testing.T, text string) (pod *corev1.Pod, notes string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON([]byte(text)))
	template := workload.PodTemplate(object)
	if template == nil {
		return nil, ""
	}
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	pod, err := (&review{Session: cli.NewSession(streams)}).podOf(object, template)
	require.NoError(t, err)
	return pod, errOut.String()
}

func TestPodOf(t *testing.T) {
	const containers = `"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]`
	for name, text := range map[string]string{
		"a pod": `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {` + containers +
			`}}`,
		"a Deployment": `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
			"spec": {"template": {"spec": {` + containers + `}}}}`,
		"a CronJob": `{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "web"},
			"spec": {"jobTemplate": {"spec": {"template": {"spec": {` + containers + `}}}}}}`,
		"a PodTemplate": `{"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "web"},
			"template": {"spec": {` + containers + `}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			pod, notes := podIn(t, text)
			require.Equal(t, "web", pod.Name)
			require.Equal(t, "Pod", pod.Kind)
			require.Equal(t, "i", pod.Spec.Containers[0].Image)
			require.Zero(t, pod.Spec.Containers[0].Ports[0].HostPort)
			require.Empty(t, notes)
		})
	}
	t.Run("an object without pods", func(t *testing.T) {
		pod, _ := podIn(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}}`)
		require.Nil(t, pod)
	})
}

func TestPodOfHasFieldsThatKubernetesSetsBeforeAdmission(t *testing.T) {
	pod, notes := podIn(t, `{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {
		"volumeClaimTemplates": [{"metadata": {"name": "data"}}],
		"template": {"spec": {
			"hostNetwork": true, "serviceAccount": "old", "unknown": 1, "volumes": [{"name": "data", "emptyDir": {}}],
			"containers": [{"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]}]
		}}}}`)
	require.Equal(t, "old", pod.Spec.ServiceAccountName)
	require.Equal(t, int32(80), pod.Spec.Containers[0].Ports[0].HostPort)
	require.Equal(t, int32(8081), pod.Spec.Containers[0].Ports[1].HostPort)
	require.Len(t, pod.Spec.Volumes, 1)
	require.Equal(t, "data-db-0", pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
	require.Contains(t, notes, `unknown field "spec.unknown"`)
}

// No API server has decoded the template in a file, or in an object of another project's kind.
func TestPodOfParsesNoExcessiveQuantity(t *testing.T) {
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON([]byte(`{"apiVersion": "example.com/v1", "kind": "Rollout", "metadata": {"name": "web"},
		"spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1e-100"}}}]}}}}`)))
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	_, err := (&review{Session: cli.NewSession(streams)}).podOf(object, workload.PodTemplate(object))
	require.ErrorContains(t, err, `Rollout web: spec.containers[0].resources.limits[cpu] is "1e-100": a quantity has at most`)
}
