package constraint

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func workloadOf(kind string, pods corev1.PodSpec) cluster.Workload {
	return cluster.Workload{
		Kind: schema.GroupKind{Group: appsv1.GroupName, Kind: kind}, Namespace: "drivers", Name: "one", Pods: pods,
	}
}

func TestReasonNodesNeed(t *testing.T) {
	mounting := func(path string) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}},
		}}
	}
	tests := map[string]struct {
		workload cluster.Workload
		want     string
	}{
		"a network driver": {
			workloadOf("Deployment", mounting("/etc/cni/net.d")), "mounts /etc/cni/net.d, like a network driver",
		},
		"a storage driver": {
			workloadOf("DaemonSet", mounting("/var/lib/kubelet/plugins")),
			"mounts /var/lib/kubelet/plugins, like a storage driver",
		},
		"a directory with the same prefix": {workloadOf("Deployment", mounting("/etc/cnix")), ""},
		"a system priority class": {workloadOf("Deployment",
			corev1.PodSpec{PriorityClassName: "system-node-critical"}),
			"has priority class system-node-critical"},
		"another priority class": {workloadOf("Deployment", corev1.PodSpec{PriorityClassName: "high"}), ""},
		"a DaemonSet with host network": {
			workloadOf("DaemonSet", corev1.PodSpec{HostNetwork: true}), "is a DaemonSet with host network",
		},
		"a Deployment with host network": {workloadOf("Deployment", corev1.PodSpec{HostNetwork: true}), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, reasonNodesNeed(test.workload)) })
	}
}

func TestExemptNamespaces(t *testing.T) {
	pods := func(args ...string) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Args: args}}}
	}
	always := []string{"kube-system", "nstpl-system"}
	tests := map[string]struct {
		pods corev1.PodSpec
		want []string
	}{
		"no flag": {pods("--v=1"), always},
		"one argument": {
			pods("--scc-exempt-namespaces=cni, storage,"), append(always[:2:2], "cni", "storage"),
		},
		"two arguments":        {pods("--scc-exempt-namespaces", "cni"), append(always[:2:2], "cni")},
		"a flag without value": {pods("--scc-exempt-namespaces"), always},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, exemptNamespaces(test.pods))
		})
	}
}
