package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

const (
	// probeName is the name of the webhook of a probe.
	probeName = "probe.policy.nstpl.dev"
	// probeTimeoutSeconds is short, since a probe that cannot be sent is an answer, too.
	probeTimeoutSeconds = 1
	// probedName is the expression for the name that the webhook compares with the probe.
	probedName = "object.metadata.?name.orValue('')"
)

// A probe finds out whether the API server calls certain webhooks. After they were written, the API server goes on with
// those that it knew until it has compiled the match conditions of the new ones, which can take a second. So the same
// configuration has one more webhook, which denies the creation of a Lease of a certain name in the operator's
// namespace. A dry run of that creation is the probe: the name ends with a digest of the other webhooks.
//
// Since Kubernetes 1.37, the API server sends no SelfSubjectAccessReviews to webhooks.
type probe string

// newProbe returns the probe of the webhooks of a configuration.
func newProbe(webhooks []admissionregistrationv1.ValidatingWebhook) (probe, error) {
	content, err := json.Marshal(webhooks)
	if err != nil {
		return "", fmt.Errorf("compute the digest of the webhooks: %w", err)
	}
	digest := sha256.Sum256(content)
	return probe("nstpl-probe-" + hex.EncodeToString(digest[:])), nil
}

// probeOf returns the probe of the webhooks that another replica has written, or "" if there is none.
func probeOf(webhooks []admissionregistrationv1.ValidatingWebhook) probe {
	for i := range webhooks {
		if webhooks[i].Name != probeName {
			continue
		}
		for _, condition := range webhooks[i].MatchConditions {
			if _, after, found := strings.Cut(condition.Expression, probedName+" == '"); found {
				name, _, _ := strings.Cut(after, "'")
				return probe(name)
			}
		}
	}
	return ""
}

// webhook returns the webhook that denies the probe.
func (p probe) webhook(endpoint Endpoint, bundle []byte) admissionregistrationv1.ValidatingWebhook {
	return admissionregistrationv1.ValidatingWebhook{
		Name: probeName, ClientConfig: endpoint.clientConfig(probePath, bundle),
		Rules: []admissionregistrationv1.RuleWithOperations{
			Rule(coordinationv1.GroupName, "v1", admissionregistrationv1.NamespacedScope, []string{"leases"},
				admissionregistrationv1.Create),
		},
		NamespaceSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelMetadataName: v1alpha1.OperatorNamespace},
		},
		ObjectSelector:  orEverything(nil),
		MatchConditions: Every("probe", probedName+" == '"+string(p)+"'"),
		MatchPolicy:     new(admissionregistrationv1.Equivalent), FailurePolicy: new(admissionregistrationv1.Fail),
		TimeoutSeconds: new(int32(probeTimeoutSeconds)), SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// isCalled reports whether the API server calls the webhooks. It does so as well if it tried to send the probe and
// could not: in a cluster, a Service has no endpoint before the first operator is ready.
func (p probe) isCalled(ctx context.Context, leases coordinationclient.LeaseInterface) (bool, error) {
	_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: string(p)}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && !strings.Contains(err.Error(), probeName) {
		return false, fmt.Errorf("probe whether the API server calls the webhooks: %w", err)
	}
	return err != nil, nil
}

// denyProbe is the handler of the webhook.
func denyProbe(context.Context, ctrladmission.Request) ctrladmission.Response {
	return ctrladmission.Denied("the API server calls the webhooks of nstpl-operator")
}
