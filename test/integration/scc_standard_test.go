package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/test/marks"
)

// probesHost has the kubelet send a request to another host than the pod.
func probesHost(p *corev1.Pod) {
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: "10.0.0.1", Port: intstr.FromInt32(80)},
	}}
}

func hooksHost(p *corev1.Pod) {
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: "10.0.0.1", Port: intstr.FromInt32(80)},
	}}
}

func initProbesHost(p *corev1.Pod) {
	p.Spec.InitContainers = []corev1.Container{{
		Name: "sidecar", Image: "a", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			TCPSocket: &corev1.TCPSocketAction{Host: "10.0.0.1", Port: intstr.FromInt32(80)},
		}},
	}}
}

func isUnconfined(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined},
	}
}

func isUnmasked(p *corev1.Pod) {
	p.Spec.HostUsers = new(false)
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{ProcMount: new(corev1.UnmaskedProcMount)}
}

// A constraint admits what OpenShift's would, and with podSecurityStandard only what the Pod Security Standards allow.
func TestConstraintsFollowPodSecurityStandards(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	ns := s.createNamespace("a").Name
	jane, _ := s.newPodAdmin("jane")
	create := func(shape func(*corev1.Pod)) error {
		return jane.Create(t.Context(), newPod(ns, "pod", shape), client.DryRunAll)
	}
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create(func(*corev1.Pod) {})) })
	shapes := map[string]struct {
		shape func(*corev1.Pod)
		field string
	}{
		"probe":     {probesHost, "spec.containers[0].readinessProbe.httpGet.host: it must be empty"},
		"hook":      {hooksHost, "spec.containers[0].lifecycle.preStop.httpGet.host: it must be empty"},
		"sidecar":   {initProbesHost, "spec.initContainers[0].livenessProbe.tcpSocket.host: it must be empty"},
		"AppArmor":  {isUnconfined, `spec.containers[0].securityContext.appArmorProfile.type: "Unconfined" is not allowed`},
		"procMount": {isUnmasked, "spec.containers[0].securityContext.procMount: it must be Default"},
	}
	for name, test := range shapes {
		require.NoError(t, create(test.shape), name)
	}
	_, err := s.kubectl(t.Context(), "", "patch", "scc", "restricted", "--type=merge", "--patch",
		`{"podSecurityStandard": "Restricted"}`)
	require.NoError(t, err)
	for name, test := range shapes {
		s.eventually(func(c *assert.CollectT) { // until the operator knows the change
			assert.ErrorContains(c, create(test.shape), test.field, name)
		})
	}
	require.NoError(t, create(func(*corev1.Pod) {}))
	_, err = s.kubectl(t.Context(), "", "patch", "scc", "restricted", "--type=merge", "--patch",
		`{"podSecurityStandard": "Baseline"}`)
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create(isUnmasked), "in a user namespace") })
	require.Error(t, create(probesHost))
}
