package check

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// request is a request that the operator or its pods depend on.
type request struct {
	operation admissionregistrationv1.OperationType
	resource  schema.GroupVersionResource
}

// requestsOfOperator are those in the operator's namespace without which it does not start or does not lead.
var requestsOfOperator = []request{
	{admissionregistrationv1.Create, corev1.SchemeGroupVersion.WithResource("pods")},
	{admissionregistrationv1.Update, schema.GroupVersionResource{
		Group: "coordination.k8s.io", Version: "v1", Resource: "leases",
	}},
	{admissionregistrationv1.Update, corev1.SchemeGroupVersion.WithResource("secrets")},
	{admissionregistrationv1.Update, corev1.SchemeGroupVersion.WithResource("configmaps")},
}

// policyKinds is the ClusterRole with the kinds that templates can declare by default.
const policyKinds = "nstpl-operator-policy-kinds"

// declarable returns the creations of the objects that templates can declare, by the manifests.
func (c *common) declarable() []request {
	var requests []request
	for _, object := range c.manifests {
		role := &rbacv1.ClusterRole{}
		if object.GetName() != policyKinds ||
			runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role) != nil {
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				if slices.Contains(rule.Verbs, "create") {
					requests = append(requests, request{admissionregistrationv1.Create, schema.GroupVersionResource{
						Group: rule.APIGroups[0], Version: "v1", Resource: resource,
					}})
				}
			}
		}
	}
	return requests
}

// labelsOf returns the labels of a namespace of the manifests, as they are stored or as they will be.
func (c *common) labelsOf(namespace string) labels.Set {
	object := ref{kind: corev1.SchemeGroupVersion.WithKind("Namespace"), name: namespace}
	if stored := c.stored[object]; stored.err == nil && stored.value != nil {
		return withName(namespace, stored.value.GetLabels())
	}
	for _, declared := range c.manifests {
		if refOf(declared) == object {
			return withName(namespace, declared.GetLabels())
		}
	}
	return withName(namespace, nil)
}

// withName returns the labels of a namespace with those that it always has.
func withName(namespace string, declared map[string]string) labels.Set {
	return labels.Merge(declared, labels.Set{corev1.LabelMetadataName: namespace, partOfLabel: partOf})
}

// receives reports whether the API server calls a webhook for one of some requests in a namespace with labels. It
// reports false for a webhook with match conditions, which usually exclude requests.
func (h *hook) receives(requests []request, namespace labels.Set) bool {
	return len(h.conditions) == 0 && h.mayReceive(requests, namespace)
}

// mayReceive reports whether the API server calls a webhook for one of some requests in a namespace with labels, unless
// match conditions exclude them. It reports false for a webhook that selects objects by labels.
func (h *hook) mayReceive(requests []request, namespace labels.Set) bool {
	if !selects(h.namespaces, namespace) || !selects(h.objects, nil) {
		return false
	}
	return slices.ContainsFunc(requests, func(r request) bool {
		return slices.ContainsFunc(h.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			scope := rule.Scope
			return (scope == nil || *scope != admissionregistrationv1.ClusterScope) &&
				hasOrAll(rule.Operations, r.operation) && hasOrAll(rule.APIGroups, r.resource.Group) &&
				hasOrAll(rule.APIVersions, r.resource.Version) &&
				(hasOrAll(rule.Resources, r.resource.Resource) || slices.Contains(rule.Resources, "*/*"))
		})
	})
}

func hasOrAll[T ~string](values []T, value T) bool {
	return slices.Contains(values, value) || slices.Contains(values, "*")
}

func selects(selector *metav1.LabelSelector, set labels.Set) bool {
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && parsed.Matches(set)
}

// checkOtherWebhooks checks whether webhooks of others can stop the operator.
func checkOtherWebhooks(c *common) []Result {
	j := judgement{check: "other-webhooks"}
	if c.hooks.err != nil {
		return []Result{unread(j.check, "list webhook configurations", c.hooks.err)}
	}
	declarable := c.declarable()
	operatorNamespace := c.labelsOf(v1alpha1.OperatorNamespace)
	var blocking, conditional, untried, seeing []string
	for i := range c.hooks.value {
		h := &c.hooks.value[i]
		fails := h.failurePolicy != admissionregistrationv1.Ignore
		blocks := fails && h.receives(requestsOfOperator, operatorNamespace)
		if service, ok := h.service(); ok && fails && c.isGone(service) {
			concerns := blocks || h.receives(declarable, labels.Set{})
			j.results = append(j.results, goneService(j.check, h, service, concerns))
			continue
		}
		if h.isOwn() {
			continue
		}
		switch {
		case blocks:
			blocking = append(blocking, h.name)
		case fails && h.mayReceive(requestsOfOperator, operatorNamespace):
			conditional = append(conditional, h.name)
		}
		if !supportsDryRuns(h.sideEffects) && h.receives(declarable, c.labelsOf(v1alpha1.TrialNamespace)) {
			untried = append(untried, h.name)
		}
		if h.mutates && h.receives(declarable, labels.Set{}) {
			seeing = append(seeing, h.name)
		}
	}
	j.add(Warning, "while these webhooks cannot be called, the operator cannot start or lead", blocking,
		"exclude the namespace "+v1alpha1.OperatorNamespace+" from them with a namespaceSelector")
	j.add(Unknown, "match conditions, which are not judged, decide whether these webhooks can stop the operator",
		conditional, "exclude the namespace "+v1alpha1.OperatorNamespace+" from them with a namespaceSelector, "+
			"unless their match conditions exclude it")
	j.add(Warning, "templates cannot be tried, since these webhooks do not support dry runs", untried,
		"set sideEffects to None or NoneOnDryRun if that is true for them, or exclude the namespace "+
			v1alpha1.TrialNamespace)
	message := "no webhook of others can stop the operator"
	if len(seeing) > 0 {
		message += "; these may change the objects of templates: " + output.FirstFew(seeing)
	}
	return j.orOK(message)
}

// isGone reports whether a Service is known to be missing.
func (c *common) isGone(service ref) bool {
	found, known := c.services[service]
	return known && found.err == nil && !found.value
}

// goneService returns the result for a webhook that cannot be called. Concerns reports whether it matches requests that
// nstpl depends on.
func goneService(id string, h *hook, service ref, concerns bool) Result {
	kind := "validatingwebhookconfiguration"
	if h.mutates {
		kind = "mutatingwebhookconfiguration"
	}
	r := Result{
		Check: id, Status: Failure, Object: kind + ".admissionregistration.k8s.io/" + h.configuration,
		Message: fmt.Sprintf("webhook %s denies every request that it matches, since its Service %s/%s does not exist",
			h.name, service.namespace, service.name),
		Remedy: fmt.Sprintf("install what serves it, or run 'kubectl delete %s %s'", kind, h.configuration),
	}
	switch {
	case h.isOwn():
		r.Remedy = fmt.Sprintf("install nstpl again, or run 'kubectl delete %s %s'", kind, h.configuration)
	case !concerns:
		r.Status = Warning
	}
	return r
}

// supportsDryRuns reports whether the API server sends dry runs to a webhook. It rejects them otherwise.
func supportsDryRuns(effects admissionregistrationv1.SideEffectClass) bool {
	return effects == admissionregistrationv1.SideEffectClassNone ||
		effects == admissionregistrationv1.SideEffectClassNoneOnDryRun
}
