package integration_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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

// podWebhookURL returns the URL at which the API server has the operator validate pods. It ends in the revision of the
// webhook: without it, constraints leave the decision to a request of the API server.
func (s *testScope) podWebhookURL() string {
	s.t.Helper()
	configurations := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	require.NoError(s.t, s.client.List(s.t.Context(), configurations))
	for _, configuration := range configurations.Items {
		for _, webhook := range configuration.Webhooks {
			for _, rule := range webhook.Rules {
				if slices.Contains(rule.Resources, "pods") && strings.Contains(configuration.Name, "constraints") {
					return *webhook.ClientConfig.URL
				}
			}
		}
	}
	require.Fail(s.t, "no webhook validates pods")
	return ""
}

// An API server of a later version sends fields that the operator does not know. This one does not store them, so the
// review is sent to the operator itself.
func TestFieldsOfLaterAPIServersAreDenied(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	ns := s.createNamespace("a").Name
	jane, _ := s.newPodAdmin("jane")
	pod := newPod(ns, "pod")
	s.eventually(func(c *assert.CollectT) {
		if assert.NoError(c, jane.Create(t.Context(), pod, client.DryRunAll)) { // admission has filled in what it sets
			assert.NotEmpty(c, pod.Annotations[v1alpha1.SCCAnnotation])
		}
	})
	review := func(change func(securityContext map[string]any)) *admissionv1.AdmissionResponse {
		t.Helper()
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
		require.NoError(t, err)
		fields["apiVersion"], fields["kind"] = "v1", "Pod"
		container := fields["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
		change(container["securityContext"].(map[string]any))
		raw, err := json.Marshal(fields)
		require.NoError(t, err)
		body, err := json.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request: &admissionv1.AdmissionRequest{
				UID: "later", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
				Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Name: pod.Name, Namespace: ns,
				Operation: admissionv1.Create, UserInfo: authenticationv1.UserInfo{
					Username: "jane", Groups: []string{"system:authenticated"},
				},
				Object: runtime.RawExtension{Raw: raw}, DryRun: new(true),
			},
		})
		require.NoError(t, err)
		response, err := newUntrustedClient().Post(s.podWebhookURL(), "application/json", bytes.NewReader(body))
		require.NoError(t, err)
		defer response.Body.Close()
		require.Equal(t, http.StatusOK, response.StatusCode)
		answer := admissionv1.AdmissionReview{}
		require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
		return answer.Response
	}
	known := review(func(map[string]any) {})
	require.True(t, known.Allowed, "%v", known.Result)
	for field, change := range map[string]func(map[string]any){
		"securityContext.bypass": func(context map[string]any) { context["bypass"] = true },
		"securityContext.seccompProfile.bypass": func(context map[string]any) {
			context["seccompProfile"] = map[string]any{"type": "RuntimeDefault", "bypass": true}
		},
	} {
		later := review(change)
		require.False(t, later.Allowed, field)
		require.Contains(t, later.Result.Message, field)
		require.Contains(t, later.Result.Message, "does not know the field")
	}
}
