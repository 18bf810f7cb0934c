package cluster

import (
	"context"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// TryTemplate creates a NamespaceTemplate without objects by a dry run, about which a webhook of the operator decides.
// The API server generates its name. It would select no namespace.
func (c *Cluster) TryTemplate(ctx context.Context) error {
	template := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NamespaceTemplate",
		"metadata": map[string]any{"generateName": TriedPrefix},
		"spec": map[string]any{"namespaces": map[string]any{"labelSelector": map[string]any{
			"matchLabels": map[string]any{v1alpha1.GroupVersion.Group + "/check": "selects-none"},
		}}},
	}}
	_, err := c.Dynamic.Resource(v1alpha1.NamespaceTemplates).
		Create(ctx, template, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// TriedPrefix begins the names of objects that are created by dry runs to learn whether they would be allowed.
const TriedPrefix = "nstpl-check-"

// FailedCall returns why the API server could not call a webhook, or "" if the error is another one.
func FailedCall(err error) string {
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		return ""
	}
	// What comes before is the same for all causes.
	if _, cause, found := strings.Cut(err.Error(), "failed to call webhook: "); found {
		return cause
	}
	return err.Error()
}

// WebhookEndpoints returns the endpoints of the Service of the operator's webhooks.
func (c *Cluster) WebhookEndpoints(ctx context.Context) ([]*discoveryv1.EndpointSlice, error) {
	return List[discoveryv1.EndpointSlice](ctx, c, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		v1alpha1.OperatorNamespace,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + v1alpha1.WebhookService})
}

// ReadyEndpoints returns how many endpoints are ready.
func ReadyEndpoints(slices []*discoveryv1.EndpointSlice) (ready int) {
	for _, slice := range slices {
		for i := range slice.Endpoints {
			// Nil means unknown, which clients take as ready.
			if isReady := slice.Endpoints[i].Conditions.Ready; isReady == nil || *isReady {
				ready++
			}
		}
	}
	return ready
}
