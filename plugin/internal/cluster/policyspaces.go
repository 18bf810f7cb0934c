package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/schema"
)

// PolicySpaces returns all PolicySpaces. The error may be a NotInstalledError.
func (c *Cluster) PolicySpaces(ctx context.Context) ([]*v1alpha1.PolicySpace, error) {
	return own[v1alpha1.PolicySpace](ctx, c, v1alpha1.PolicySpaces, "")
}

// PolicySpace returns a PolicySpace, or a NotInstalledError.
func (c *Cluster) PolicySpace(ctx context.Context, name string) (*v1alpha1.PolicySpace, error) {
	object, err := c.object(ctx, v1alpha1.PolicySpaces, name)
	if err != nil {
		return nil, err
	}
	return Decode[v1alpha1.PolicySpace](object)
}

// CheckPolicySpace returns an error if a PolicySpace does not exist. It returns nil if the caller may not read it: then
// the API server decides about requests that name it.
func (c *Cluster) CheckPolicySpace(ctx context.Context, name string) error {
	_, err := c.PolicySpace(ctx, name)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case !apierrors.IsNotFound(err):
		return err
	}
	names, unlisted := c.Names(ctx, v1alpha1.PolicySpaces, "")
	if unlisted != nil {
		return err
	}
	return NoPolicySpace(name, names)
}

// NoPolicySpace returns the error for a PolicySpace that does not exist, with the most similar of some names.
func NoPolicySpace(name string, others []string) error {
	err := fmt.Errorf("%s %q not found", v1alpha1.PolicySpaces.GroupResource(), name)
	if similar := schema.Closest(name, others); similar != "" {
		return fmt.Errorf("%w: did you mean %q?", err, similar)
	}
	return err
}

// UsageQuotas returns the ResourceQuotas that count usage for PolicySpaces, of all namespaces.
func (c *Cluster) UsageQuotas(ctx context.Context) ([]*corev1.ResourceQuota, error) {
	return list(ctx, c, corev1.SchemeGroupVersion.WithResource("resourcequotas"), metav1.NamespaceAll,
		metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.QuotaName},
		func(quota *corev1.ResourceQuota) { quota.ObjectMeta = identity(quota.ObjectMeta) })
}

// Quotas returns the ResourceQuotas of a namespace, or of all namespaces for metav1.NamespaceAll, without those that
// count usage for PolicySpaces.
func (c *Cluster) Quotas(ctx context.Context, namespace string) ([]*corev1.ResourceQuota, error) {
	return list(ctx, c, corev1.SchemeGroupVersion.WithResource("resourcequotas"), namespace,
		metav1.ListOptions{FieldSelector: "metadata.name!=" + v1alpha1.QuotaName},
		func(quota *corev1.ResourceQuota) { quota.ObjectMeta = identity(quota.ObjectMeta) })
}
