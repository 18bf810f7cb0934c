package integration_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// notInstalled is an object of a kind that the cluster does not have. Templates may declare it before it is installed.
const notInstalled = "{apiVersion: example.org/v1, kind: Gadget, metadata: {name: g}}"

// countingTransport counts requests.
type countingTransport struct {
	http.RoundTripper
	requests *atomic.Int64
}

func (t countingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	t.requests.Add(1)
	return t.RoundTripper.RoundTrip(request)
}

// newEditorClient returns a client of a user who may edit all namespaces, and the number of its requests. It returns when the
// API server knows the user's permissions.
func newEditorClient(s *testScope) (*kubernetes.Clientset, *atomic.Int64) {
	s.t.Helper()
	requests := &atomic.Int64{}
	config := s.controlPlane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: s.name("jane"), Groups: []string{"system:authenticated"}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countingTransport{next, requests} })
	user, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	s.bindClusterRole(s.name("jane"), "edit")
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, s.isAllowed(s.name("jane"), "default", "create", "configmaps"))
	})
	return user, requests
}

// A write into a namespace whose population failed is answered once, with the reason, instead of being repeated by the
// client for minutes. When the template is corrected, the namespace opens.
func TestHoldDeniesWritesIntoFailedNamespaces(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("failing", documents(notInstalled, configMap("settings", "v")))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	user, requests := newEditorClient(s)
	failed := s.createNamespace("failed")
	s.waitReason(failed, "ObjectsFailed")
	s.waitPresent(failed, configMap("settings", "v"))

	configMaps := user.CoreV1().ConfigMaps(failed.Name)
	patch := []byte(`{"data": {"key": "mine"}}`)
	for name, write := range map[string]func() error{
		"create": func() error {
			_, err := configMaps.Create(t.Context(), newConfigMap("", "mine"), metav1.CreateOptions{})
			return err
		},
		"create, dry run": func() error {
			_, err := configMaps.Create(t.Context(), newConfigMap("", "mine"),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		},
		"patch": func() error {
			_, err := configMaps.Patch(t.Context(), "settings", types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		"delete": func() error { return configMaps.Delete(t.Context(), "settings", metav1.DeleteOptions{}) },
		"delete all": func() error {
			return configMaps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	} {
		before := requests.Load()
		err := write()
		expectForbidden(t, err,
			"namespace "+failed.Name+" could not be populated, and writes into it are denied until "+
				"an administrator corrects the template, or resolves what prevents the object: ObjectsFailed: "+
				"gadget.example.org/g of template "+template.Name+": the cluster has no such kind")
		require.EqualValues(t, 1, requests.Load()-before, "%s is answered, not repeated", name)
	}
	s.mustGet(failed, parseYAML(t, configMap("settings", "v"))[0])

	s.updateTemplate(template, withObjects(t, configMap("settings", "repaired")))
	s.waitInitialized(failed)
	before := requests.Load()
	_, err := configMaps.Create(t.Context(), newConfigMap("", "mine"), metav1.CreateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, requests.Load()-before)
}

// A failure that may pass by itself delays writes, and does not deny them.
func TestHoldDelaysWritesWhileTheOperatorRetries(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("settings", "v"))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	user, _ := newEditorClient(s)
	before := s.createPopulatedNamespace("before")
	webhook := strings.NewReplacer("SCOPE", s.id, "LABEL", testLabel).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: SCOPE}
webhooks:
- name: unreachable.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://127.0.0.1:1/"}
  namespaceSelector: {matchLabels: {LABEL: SCOPE}}
  matchConditions: [{name: settings, expression: "request.name == 'settings'"}]
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
`)
	s.applyYAML(webhook)
	s.eventually(func(c *assert.CollectT) { // until the API server calls the webhook
		probe := newConfigMap(before.Name, "settings")
		assert.ErrorContains(c, s.client.Create(t.Context(), probe, client.DryRunAll), "unreachable.example.com")
	})
	ns := s.createNamespace("n")
	s.waitReason(ns, "Retrying")

	answer := user.CoreV1().RESTClient().Post().Namespace(ns.Name).Resource("configmaps").
		Body(newConfigMap("", "mine")).MaxRetries(0).Do(t.Context()).Error()
	require.True(t, apierrors.IsTooManyRequests(answer), "%v", answer)
	require.ErrorContains(t, answer, "namespace "+ns.Name+" is being initialized: it waits for namespace-template "+
		"(Retrying: configmap/settings of template "+s.name("defaults")+": ")
	require.ErrorContains(t, answer, "unreachable.example.com")

	done := make(chan error, 1)
	go func() {
		_, err := user.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		done <- err
	}()
	s.deleteYAML(webhook)
	require.NoError(t, <-done)
	s.waitPopulated(ns)
}

// A namespace that was created right after its template was corrected, or right after its policy space was created, is
// not denied writes because a cache of the operator is behind.
func TestHoldDeniesNoWriteBecauseOfALateCache(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	const rounds = 15
	s := newScope(t, sharedCluster)
	user, _ := newEditorClient(s)
	template := s.createTemplate("failing", notInstalled)
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	for round := range rounds {
		s.patchTemplate(template, withObjects(t, configMap("settings", fmt.Sprint(round))))
		ns := s.createNamespace(fmt.Sprint("a", round))
		_, err := user.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		require.NoError(t, err, "round %d", round)
		s.patchTemplate(template, withObjects(t, notInstalled))
	}
	s.updateTemplate(template, withObjects(t, configMap("settings", "v")))
	for round := range rounds {
		space := fmt.Sprint("space", round)
		s.createSpace(space, "")
		ns := s.createNamespace(fmt.Sprint("b", round), s.inSpace(space))
		_, err := user.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		require.NoError(t, err, "round %d", round)
	}
}

// The API server may quote the values of a Secret when it refuses the Secret. Users of the namespace do not read them.
func TestHoldQuotesNoValuesOfSecrets(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	const value = "hunter2-is-secret"
	template := s.createTemplate("token",
		"{apiVersion: v1, kind: Secret, metadata: {name: "+s.name("token")+"}, stringData: {pin: "+value+"}}")
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	user, _ := newEditorClient(s)
	policy := strings.NewReplacer("SCOPE", s.id).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: SCOPE}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets], operations: [CREATE, UPDATE]}]
  validations:
  - {expression: "object.metadata.name != 'SCOPE-token'", messageExpression: "'refused: ' + string(object.data.pin)"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: SCOPE}
spec: {policyName: SCOPE, validationActions: [Deny]}
`)
	s.applyYAML(policy)
	s.eventually(func(c *assert.CollectT) {
		probe := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: s.name("token"), Namespace: "default"},
			StringData: map[string]string{"pin": value},
		}
		assert.ErrorContains(c, s.client.Create(t.Context(), probe, client.DryRunAll), "refused")
	})
	ns := s.createNamespace("a")
	s.waitReason(ns, "ObjectsFailed")
	_, err := user.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), newConfigMap("", "mine"), metav1.CreateOptions{})
	expectForbidden(t, err, "secret/"+s.name("token")+" of template "+template.Name+": ")
	require.ErrorContains(t, err, "may contain values of the Secret")
	s.waitEvent(ns, corev1.EventTypeWarning, "ObjectFailed", "secret/"+s.name("token"))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.NotEmpty(c, status.Failures)
	})

	events := &eventsv1.EventList{}
	require.NoError(t, s.client.List(t.Context(), events, client.InNamespace(ns.Name)))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
	for _, text := range []string{
		err.Error(), fmt.Sprint(events.Items), fmt.Sprint(ns.Status), fmt.Sprint(template.Status),
		s.operator.Log(ns.Name),
	} {
		require.NotContains(t, text, value)
		require.NotContains(t, text, base64.StdEncoding.EncodeToString([]byte(value)))
	}
}
