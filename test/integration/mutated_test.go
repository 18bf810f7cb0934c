package integration_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
)

// mutatedLabel selects the namespaces that others mutate.
const mutatedLabel = "mutated.example.com/by"

// labelByWebhook has a webhook of another tool, which is called after nstpl's, set the scope's label and another creator
// in the namespaces that have mutatedLabel.
func labelByWebhook(s *testScope) {
	s.t.Helper()
	patch := fmt.Sprintf(`[{"op": "add", "path": "/metadata/labels/%s", "value": %q},
		{"op": "add", "path": "/metadata/annotations", "value": {%q: "another-user"}}]`,
		strings.ReplaceAll(testLabel, "/", "~1"), s.id, v1alpha1.CreatorAnnotation)
	server := httptest.NewTLSServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		review := admissionv1.AdmissionReview{}
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
			return
		}
		kind := admissionv1.PatchTypeJSONPatch
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: &kind, Patch: []byte(patch),
		}
		response.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(response).Encode(review) // the API server has gone
	}))
	s.t.Cleanup(server.Close)
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zz-" + s.id},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "labels.example.com", AdmissionReviewVersions: []string{"v1"},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      new(server.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{mutatedLabel: s.id}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"},
				},
			}},
		}},
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), configuration))
	s.t.Cleanup(func() { _ = s.client.Delete(context.WithoutCancel(s.t.Context()), configuration) })
}

// labelByPolicy has a MutatingAdmissionPolicy do the same.
func labelByPolicy(s *testScope) {
	s.t.Helper()
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: zz-%[1]s
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    objectSelector: {matchLabels: {%[2]s: %[1]s}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{metadata: Object.metadata{labels: {'%[3]s': '%[1]s'}, annotations: {'%[4]s': 'another-user'}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: zz-%[1]s
spec:
  policyName: zz-%[1]s
`
	text := fmt.Sprintf(policy, s.id, mutatedLabel, testLabel, v1alpha1.CreatorAnnotation)
	s.applyYAML(text)
	s.t.Cleanup(func() { _, _ = s.kubectl(context.WithoutCancel(s.t.Context()), text, "delete", "--filename", "-") })
}

// A namespace opens only after the templates have populated it that select it by labels which other admission plugins
// set, and its creator is who created it, whatever they write.
func TestInitializationKnowsWhatOthersSetInNewNamespaces(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	others := map[string]func(*testScope){"a webhook": labelByWebhook}
	if _, flags, _ := controlplane.Manifests(controlplane.Version()); len(flags) == 0 { // since Kubernetes 1.36
		others["a policy"] = labelByPolicy
	}
	for name, label := range others {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			s.createTemplate("t", configMap("a", "v"))
			s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
			label(s)
			jane := s.newTemplateAuthor("jane", policyRule("create", "", "namespaces")) // without the verb set-creator
			unlabeled := func(short string) *corev1.Namespace {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
					Name: s.name(short), Labels: map[string]string{mutatedLabel: s.id},
				}}
			}
			s.eventually(func(c *assert.CollectT) { // until the API server knows the other plugin
				ns := unlabeled("probe")
				if assert.NoError(c, jane.Create(t.Context(), ns, client.DryRunAll)) {
					assert.Equal(c, s.id, ns.Labels[testLabel])
				}
			})
			ns := unlabeled("n")
			require.NoError(t, jane.Create(t.Context(), ns))
			require.True(t, initialize.Initializing(ns))
			require.Equal(t, []string{v1alpha1.TemplateInitializer}, initialize.Pending(ns))
			require.Equal(t, s.name("jane"), ns.Annotations[v1alpha1.CreatorAnnotation])
			s.waitPopulated(ns)
			s.waitInitialized(ns)
			s.mustGet(ns, parseYAML(t, configMap("a", "v"))[0])
		})
	}
}
