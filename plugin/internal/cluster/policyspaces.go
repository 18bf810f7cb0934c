package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// PolicySpaces returns all PolicySpaces. The error may be a NotInstalledError.
func (c *Cluster) PolicySpaces(ctx context.Context) ([]*v1alpha1.PolicySpace, error) {
	items, err := read[v1alpha1.PolicySpace](ctx, c, v1alpha1.PolicySpaces, "")
	spaces := make([]*v1alpha1.PolicySpace, len(items))
	for i := range items {
		spaces[i] = &items[i]
	}
	return spaces, err
}

// Quotas returns the ResourceQuotas of all namespaces, without those that count usage for PolicySpaces.
func (c *Cluster) Quotas(ctx context.Context) ([]*corev1.ResourceQuota, error) {
	return list(ctx, c, corev1.SchemeGroupVersion.WithResource("resourcequotas"), metav1.NamespaceAll,
		metav1.ListOptions{FieldSelector: "metadata.name!=" + v1alpha1.QuotaName},
		func(quota *corev1.ResourceQuota) { quota.ObjectMeta = identity(quota.ObjectMeta) })
}
