package check

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// everything returns a webhook of others that matches all requests.
func everything() hook {
	return hook{
		configuration: "others", name: "all.example.com", failurePolicy: admissionregistrationv1.Fail,
		sideEffects: admissionregistrationv1.SideEffectClassNone,
		rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"*"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		}},
	}
}

func TestOtherWebhooks(t *testing.T) {
	t.Parallel()
	except := func(namespace string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{namespace},
		}}}
	}
	for name, test := range map[string]struct {
		change          func(h *hook)
		status          Status
		message, remedy string
	}{
		"everything": {
			func(*hook) {}, Warning, "the operator cannot start or lead: all.example.com", "exclude the namespace nstpl-system",
		},
		"everything else": {
			func(h *hook) { h.namespaces = except("nstpl-system") }, OK, "no webhook of others can stop the operator", "",
		},
		"namespaces with a label": {func(h *hook) {
			h.namespaces = &metav1.LabelSelector{MatchLabels: map[string]string{"istio-injection": "enabled"}}
		}, OK, "no webhook of others", ""},
		"a failure is ignored": {
			func(h *hook) { h.failurePolicy = admissionregistrationv1.Ignore }, OK, "no webhook of others", "",
		},
		"only some requests": {func(h *hook) {
			h.conditions = []admissionregistrationv1.MatchCondition{{Name: "some", Expression: "true"}}
		}, Unknown, "match conditions, which are not judged, decide whether these webhooks can stop the operator: all.example.com",
			"exclude the namespace nstpl-system from them with a namespaceSelector, unless"},
		"only some requests, and a failure is ignored": {func(h *hook) {
			h.conditions = []admissionregistrationv1.MatchCondition{{Name: "some", Expression: "true"}}
			h.failurePolicy = admissionregistrationv1.Ignore
		}, OK, "no webhook of others", ""},
		"only some requests of other namespaces": {func(h *hook) {
			h.conditions = []admissionregistrationv1.MatchCondition{{Name: "some", Expression: "true"}}
			h.namespaces = except("nstpl-system")
		}, OK, "no webhook of others", ""},
		"only objects with a label": {func(h *hook) {
			h.objects = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}, OK, "no webhook of others", ""},
		"only cluster-scoped objects": {
			func(h *hook) { h.rules[0].Scope = new(admissionregistrationv1.ClusterScope) }, OK, "no webhook of others", "",
		},
		"only deployments": {func(h *hook) { h.rules[0].Resources = []string{"deployments"} }, OK, "no webhook of others", ""},
		"pods": {func(h *hook) {
			h.rules[0].Rule = admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
			}
		}, Warning, "cannot start or lead", "exclude"},
		"no dry runs": {func(h *hook) {
			h.failurePolicy, h.sideEffects = admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassUnknown
		}, Warning, "do not support dry runs: all.example.com", "NoneOnDryRun"},
		"no dry runs, but not in nstpl-trial": {func(h *hook) {
			h.failurePolicy, h.sideEffects = admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassSome
			h.namespaces = except("nstpl-trial")
		}, OK, "no webhook of others", ""},
		"mutates": {func(h *hook) {
			h.failurePolicy, h.mutates = admissionregistrationv1.Ignore, true
		}, OK, "these may change the objects of templates: all.example.com", ""},
		"of the operator itself": {
			func(h *hook) { h.configuration = v1alpha1.ConstraintWebhookName }, OK, "no webhook of others", "",
		},
		"of the operator itself, with conditions": {func(h *hook) {
			h.conditions = []admissionregistrationv1.MatchCondition{{Name: "some", Expression: "true"}}
			h.configuration = v1alpha1.ConstraintWebhookName
		}, OK, "no webhook of others", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, h := installed(t), everything()
			test.change(&h)
			c.hooks.value = []hook{h}
			requireResult(t, checkOtherWebhooks(&c), test.status, test.message, test.remedy)
		})
	}
	c := installed(t)
	c.hooks.err = errForbidden
	requireResult(t, checkOtherWebhooks(&c), Unknown, "you may not list webhook configurations", "administrator")
}

func TestWebhooksWithoutAService(t *testing.T) {
	t.Parallel()
	c, h := installed(t), everything()
	h.client.Service = &admissionregistrationv1.ServiceReference{Namespace: "gone", Name: "gone"}
	c.hooks.value = []hook{h}
	require.Len(t, servicesOf(c.hooks.value), 1)
	service, _ := h.service()
	c.services[service] = fact[bool]{value: false}
	requireResult(t, checkOtherWebhooks(&c), Failure, "its Service gone/gone does not exist",
		"kubectl delete validatingwebhookconfiguration others")
	c.hooks.value[0].rules[0].Resources = []string{"deployments"}
	requireResult(t, checkOtherWebhooks(&c), Warning, "its Service gone/gone does not exist", "install what serves it")
	c.hooks.value[0].configuration, c.hooks.value[0].mutates = v1alpha1.WebhookName, true
	requireResult(t, checkOtherWebhooks(&c), Failure, "its Service gone/gone does not exist",
		"install nstpl again, or run 'kubectl delete mutatingwebhookconfiguration nstpl-operator'")
	c.services[service] = fact[bool]{err: errForbidden}
	requireResult(t, checkOtherWebhooks(&c), OK, "no webhook of others", "")
}

func TestDeclarableObjects(t *testing.T) {
	t.Parallel()
	c := empty(t)
	require.Contains(t, c.declarable(), request{
		admissionregistrationv1.Create, corev1.SchemeGroupVersion.WithResource("resourcequotas"),
	})
	require.Equal(t, "restricted", c.labelsOf("nstpl-system")["pod-security.kubernetes.io/enforce"],
		"of the manifests, for a namespace that does not exist")
}
