package webhook

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Chain contains the plugins. Mutators change a request in the order of the chain.
type Chain []Plugin

// Endpoint is the address at which the API server reaches the webhooks.
type Endpoint struct {
	// URL is the address of an operator that runs outside of the cluster, without a path. If it is empty, the API
	// server uses the Service.
	URL string
	// Bundle returns the authorities, as PEM, that signed the endpoint's certificate, or nil while there is no
	// certificate yet. If Bundle is nil, another program, such as cert-manager, writes the bundle.
	Bundle func() []byte
}

// clientConfig returns the configuration with all fields that the API server would default, so that a comparison with
// the stored configuration finds no difference.
func (e Endpoint) clientConfig(path string, bundle []byte) admissionregistrationv1.WebhookClientConfig {
	if e.URL != "" {
		return admissionregistrationv1.WebhookClientConfig{URL: new(e.URL + path), CABundle: bundle}
	}
	return admissionregistrationv1.WebhookClientConfig{CABundle: bundle,
		Service: &admissionregistrationv1.ServiceReference{
			Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.WebhookService, Path: new(path),
			Port: new(int32(443)),
		}}
}

// mutating returns the webhooks of the mutators, in the order of the chain.
func (c Chain) mutating(
	ctx context.Context, endpoint Endpoint, bundle []byte,
) ([]admissionregistrationv1.MutatingWebhook, error) {
	var webhooks []admissionregistrationv1.MutatingWebhook
	for _, p := range c {
		if p.Mutator == nil {
			continue
		}
		needed, err := p.webhooks(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		for i, w := range needed {
			webhooks = append(webhooks, admissionregistrationv1.MutatingWebhook{
				Name: p.webhookName(i), ClientConfig: endpoint.clientConfig(p.path(mutatePath, w), bundle),
				Rules:             w.Rules,
				NamespaceSelector: orEverything(p.NamespaceSelector), ObjectSelector: orEverything(p.ObjectSelector),
				MatchConditions: w.MatchConditions, MatchPolicy: new(admissionregistrationv1.Equivalent),
				FailurePolicy: new(p.FailurePolicy), TimeoutSeconds: new(p.TimeoutSeconds),
				SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
				AdmissionReviewVersions: []string{"v1"},
				ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
			})
		}
	}
	return webhooks, nil
}

// label sets the labels of the plugins that have a webhook in a configuration, and removes those of the others.
func (c Chain) label(configuration *admissionregistrationv1.MutatingWebhookConfiguration) {
	for _, p := range c {
		isCalled := slices.ContainsFunc(configuration.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
			return w.Name == p.webhookName(0)
		})
		switch {
		case p.Mutator == nil || p.Label == "":
		case isCalled:
			metav1.SetMetaDataLabel(&configuration.ObjectMeta, p.Label, "true")
		default:
			delete(configuration.Labels, p.Label)
		}
	}
}

// validating returns the webhooks of the validators in a ValidatingWebhookConfiguration.
func (c Chain) validating(
	ctx context.Context, configuration string, endpoint Endpoint, bundle []byte,
) ([]admissionregistrationv1.ValidatingWebhook, error) {
	var webhooks []admissionregistrationv1.ValidatingWebhook
	for _, p := range c {
		if p.Validator == nil || p.configuration() != configuration {
			continue
		}
		needed, err := p.webhooks(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		for i, w := range needed {
			webhooks = append(webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: p.webhookName(i), ClientConfig: endpoint.clientConfig(p.path(validatePath, w), bundle),
				Rules:             w.Rules,
				NamespaceSelector: orEverything(p.NamespaceSelector), ObjectSelector: orEverything(p.ObjectSelector),
				MatchConditions: w.MatchConditions, MatchPolicy: new(admissionregistrationv1.Equivalent),
				FailurePolicy: new(p.FailurePolicy), TimeoutSeconds: new(p.TimeoutSeconds),
				SideEffects:             new(admissionregistrationv1.SideEffectClassNoneOnDryRun),
				AdmissionReviewVersions: []string{"v1"},
			})
		}
	}
	return webhooks, nil
}

// configurations returns the names of the ValidatingWebhookConfigurations. v1alpha1.WebhookName is the last.
func (c Chain) configurations() []string {
	var names []string
	for i := range c {
		if name := c[i].configuration(); name != v1alpha1.WebhookName && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return append(names, v1alpha1.WebhookName)
}

func orEverything(selector *metav1.LabelSelector) *metav1.LabelSelector {
	return cmp.Or(selector, &metav1.LabelSelector{})
}
