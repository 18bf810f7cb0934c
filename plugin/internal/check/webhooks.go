package check

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// templateWebhook is the name of the webhook that the operator always has: the one for NamespaceTemplates.
const templateWebhook = "template.policy.nstpl.dev"

// ownHooks returns the webhooks of the operator.
func (a *after) ownHooks() []hook {
	var own []hook
	for i := range a.hooks.value {
		if h := &a.hooks.value[i]; h.isOwn() {
			own = append(own, *h)
		}
	}
	return own
}

// hasTemplateWebhook reports whether the operator has written its webhooks.
func (a *after) hasTemplateWebhook() bool {
	return slices.ContainsFunc(a.ownHooks(), func(h hook) bool { return h.name == templateWebhook })
}

// isOwn reports whether a webhook is one of the operator.
func (h *hook) isOwn() bool {
	return slices.Contains([]string{
		v1alpha1.WebhookName, v1alpha1.AttributeWebhookName, v1alpha1.ConstraintWebhookName,
	}, h.configuration)
}

// service returns the Service that a webhook calls, if it calls one.
func (h *hook) service() (ref, bool) {
	if h.client.Service == nil {
		return ref{}, false
	}
	return ref{
		kind: corev1.SchemeGroupVersion.WithKind("Service"), namespace: h.client.Service.Namespace,
		name: h.client.Service.Name,
	}, true
}

// checkConfigurations checks whether the operator has written its webhooks.
func checkConfigurations(a *after) Result {
	r := Result{
		Check: "webhook-configurations", Status: OK,
		Object: "validatingwebhookconfiguration.admissionregistration.k8s.io/" + v1alpha1.WebhookName,
	}
	if a.hooks.err != nil {
		return unread(r.Check, "list webhook configurations", a.hooks.err)
	}
	own := a.ownHooks()
	if !a.hasTemplateWebhook() {
		r.Status = Failure
		r.Message = "the operator has not written its webhooks, so nothing checks templates or holds namespaces"
		r.Remedy = podsRemedy
		return r
	}
	r.Message = output.Count(len(own), "webhook") + " of the operator configured"
	return r
}

// soon is how long before its expiry a certificate is reported. The operator renews certificates much earlier.
const soon = 7 * 24 * time.Hour

// checkCertificates checks whether the API server can verify the certificate of the webhooks.
func checkCertificates(a *after) []Result {
	const remedy = "look for the certificate in the operator's logs: '" + logs +
		"-1'; with cert-manager, look at its Certificate"
	r := Result{Check: "webhook-certificate", Status: OK}
	own := a.ownHooks()
	if len(own) == 0 {
		return nil // another check says why
	}
	var expires time.Time
	for i := range own {
		latest, err := latestExpiry(own[i].client.CABundle)
		if err != nil && (len(own[i].client.CABundle) > 0 || own[i].client.URL == nil) {
			r.Status, r.Remedy = Failure, remedy
			r.Message = fmt.Sprintf("the API server cannot verify the certificate of webhook %s: %v", own[i].name, err)
			return []Result{r}
		}
		if err == nil && (expires.IsZero() || latest.Before(expires)) {
			expires = latest
		}
	}
	left := expires.Sub(a.now())
	switch {
	case expires.IsZero():
		return nil // a public authority has signed the certificate
	case left <= 0:
		r.Status, r.Remedy = Failure, remedy
		r.Message = "the certificate authority of the webhooks expired " + duration.HumanDuration(-left) + " ago"
	case left < soon:
		r.Status, r.Remedy = Warning, remedy
		r.Message = "the certificate authority of the webhooks expires in " + duration.HumanDuration(left)
	default:
		r.Message = "the certificate authority of the webhooks is valid for " + duration.HumanDuration(left)
	}
	return []Result{r}
}

// latestExpiry returns when the last certificate of a bundle expires.
func latestExpiry(bundle []byte) (latest time.Time, err error) {
	if len(bundle) == 0 {
		return latest, errors.New("its caBundle is empty")
	}
	for block, rest := pem.Decode(bundle); ; block, rest = pem.Decode(rest) {
		if block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return latest, fmt.Errorf("its caBundle has an invalid certificate: %w", err)
		}
		if certificate.NotAfter.After(latest) {
			latest = certificate.NotAfter
		}
	}
	if latest.IsZero() {
		err = errors.New("its caBundle has no certificate")
	}
	return latest, err
}

// checkEndpoints checks whether the Service of the webhooks has ready endpoints.
func checkEndpoints(a *after) []Result {
	const service = "the Service " + v1alpha1.WebhookService
	r := Result{Check: "webhook-endpoints", Object: "service/" + v1alpha1.WebhookService, Status: OK}
	if a.url() != "" || a.hooks.err != nil {
		return nil // the API server does not use the Service, or it is unknown whether it does
	}
	if a.endpoints.err != nil {
		return []Result{unread(r.Check, "list endpointslices in namespace "+v1alpha1.OperatorNamespace,
			a.endpoints.err)}
	}
	ready := cluster.ReadyEndpoints(a.endpoints.value)
	r.Message = fmt.Sprintf("%s has %s", service, output.Count(ready, "ready endpoint"))
	if ready == 0 {
		r.Status, r.Message, r.Remedy = Failure, service+" has no ready endpoint", podsRemedy
	}
	return []Result{r}
}

// checkCalls checks, by a template that was created in a dry run, whether the API server reaches the webhooks.
func checkCalls(a *after) []Result {
	r := Result{Check: "webhook-calls", Status: OK, Message: "the API server reaches the webhooks of the operator"}
	switch err := a.template; {
	case a.hooks.err == nil && !a.hasTemplateWebhook():
		return nil // another check says that there are no webhooks to call
	case err == nil && a.hooks.err != nil:
		r.Status, r.Message = Unknown, "the dry run of a NamespaceTemplate was allowed, with or without the webhooks of the "+
			"operator: the webhook configurations cannot be listed"
		r.Remedy = "make this request possible, and run the command again"
	case err == nil, strings.Contains(err.Error(), `"`+templateWebhook+`" denied the request`):
	case cluster.FailedCall(err) != "":
		r.Status, r.Message = Failure, "the API server cannot call the webhooks of the operator: "+cluster.FailedCall(err)
		r.Remedy = a.callRemedy(err.Error())
	case cluster.MayNotWrite(err):
		return []Result{unread(r.Check, "create namespacetemplates", err)}
	default:
		r.Status, r.Message = Unknown, "the dry run of a NamespaceTemplate failed before the webhook was called: "+err.Error()
		r.Remedy = "make this request possible, and run the command again"
	}
	return []Result{r}
}

// callRemedy returns the remedy for a webhook that cannot be called, by the message of the API server.
func (a *after) callRemedy(message string) string {
	switch {
	case strings.Contains(message, "x509:"):
		return "look for the certificate in the operator's log; restart the operator if it does not write another one"
	case strings.Contains(message, "no endpoints available"), strings.Contains(message, "connection refused"):
		return "start the operator: " + podsRemedy
	case strings.Contains(message, "not found"):
		return a.applyRemedy()
	default:
		return "allow connections from the API servers to port 9443 of the operator's pods: see NetworkPolicies and " +
			"firewalls between them; " + podsRemedy
	}
}

// checkNamespaceAdmission checks, by a namespace that was created in a dry run, whether creators are recorded.
func checkNamespaceAdmission(a *after) Result {
	r := Result{
		Check: "namespace-admission", Status: OK, Message: "the creators of new namespaces are recorded, and new namespaces held",
	}
	switch err := a.namespace.err; {
	case err == nil && a.namespace.value.GetAnnotations()[v1alpha1.CreatorAnnotation] != "":
	case err == nil:
		r.Status = Failure
		r.Message = "the creators of new namespaces are not recorded, and new namespaces are not held"
		r.Remedy = a.applyRemedy()
		if a.mutatesByWebhook() {
			r.Remedy += "; before Kubernetes 1.36 the operator does this, and must be running"
		}
	case cluster.MayNotWrite(err):
		return unread(r.Check, "create namespaces", err)
	case strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'nstpl-"),
		strings.Contains(err.Error(), "."+v1alpha1.GroupVersion.Group+`" denied the request`):
		r.Message = "the admission of nstpl decides about new namespaces: " + err.Error()
	case strings.Contains(err.Error(), "failed calling webhook"):
		r.Status, r.Message = Failure, "no namespace can be created: "+err.Error()
		r.Remedy = "start what serves this webhook, or change its configuration"
	default:
		r.Status, r.Message = Unknown, "the dry run of a Namespace was rejected: "+err.Error()
		r.Remedy = "run the command as a user whose namespaces other admission allows"
	}
	return r
}
