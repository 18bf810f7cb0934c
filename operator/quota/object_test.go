package quota_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/quota"
)

func TestUsageOf(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		created, object string
		want            []string
	}{
		"a pod": {"pods", `{spec: {overhead: {cpu: 100m}, containers: [
			{resources: {requests: {cpu: "1", memory: 1Gi, example.com/gpu: "2"}, limits: {memory: 2Gi, example.com/gpu: "2"}}},
			{resources: {requests: {cpu: 500m}}}],
			initContainers: [{resources: {requests: {memory: 3Gi}}}]}}`, []string{
			"count/pods", "1", "pods", "1", "cpu", "1600m", "requests.cpu", "1600m", "memory", "3Gi",
			"requests.memory", "3Gi", "limits.memory", "2Gi", "requests.example.com/gpu", "2",
		}},
		"a claim": {"persistentvolumeclaims", `spec: {storageClassName: gold, resources: {requests: {storage: 1.5}}}`, []string{
			"count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "2",
			"gold.storageclass.storage.k8s.io/requests.storage", "2",
			"gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1",
		}},
		"a claim by annotation": {"persistentvolumeclaims", `
			{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: old}}, spec: {storageClassName: gold}}`, []string{
			"count/persistentvolumeclaims", "1", "persistentvolumeclaims", "1", "requests.storage", "0",
			"old.storageclass.storage.k8s.io/requests.storage", "0",
			"old.storageclass.storage.k8s.io/persistentvolumeclaims", "1",
		}},
		"a service": {"services", `spec: {ports: [{port: 1}]}`, []string{
			"count/services", "1", "services", "1", "services.nodeports", "0",
		}},
		"a service with node ports": {"services", `spec: {type: NodePort, ports: [{port: 1}, {port: 2}]}`, []string{
			"count/services", "1", "services", "1", "services.nodeports", "2",
		}},
		"a load balancer": {"services", `spec: {type: LoadBalancer, ports: [{port: 1}, {port: 2}]}`, []string{
			"count/services", "1", "services", "1", "services.nodeports", "2", "services.loadbalancers", "1",
		}},
		"a load balancer without allocated node ports": {"services", `
			{spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 1, nodePort: 30000}, {port: 2}]}}`,
			[]string{"count/services", "1", "services", "1", "services.nodeports", "1", "services.loadbalancers", "1"}},
		"another object": {"jobs.batch", `spec: {parallelism: 3}`, []string{"count/jobs.batch", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(test.object, "\t", "")), &object.Object))
			used, err := quota.UsageOf(schema.ParseGroupResource(test.created), object)
			require.NoError(t, err)
			want := list(test.want...)
			require.Len(t, used, len(want))
			for resource, amount := range want {
				require.Zero(t, amount.Cmp(used[resource]), "%s is %v", resource, used[resource])
			}
		})
	}
	_, err := quota.UsageOf(schema.GroupResource{Resource: "pods"},
		&unstructured.Unstructured{Object: map[string]any{"spec": "x"}})
	require.Error(t, err)
}

func TestCountsDevices(t *testing.T) {
	t.Parallel()
	require.True(t, quota.CountsDevices("gpu.deviceclass.resource.k8s.io/devices"))
	require.False(t, quota.CountsDevices("count/resourceclaims.resource.k8s.io"))
	require.True(t, quota.CountsDevices("requests.example.com/gpu"))
	require.True(t, quota.CountsDevices("requests.deviceclass.resource.kubernetes.io/gpu"))
	require.False(t, quota.CountsDevices("requests.cpu"))
}
