package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// PolicyRepositories returns all PolicyRepositories. The error may be a NotInstalledError.
func (c *Cluster) PolicyRepositories(ctx context.Context) ([]v1alpha1.PolicyRepository, error) {
	return read[v1alpha1.PolicyRepository](ctx, c, v1alpha1.PolicyRepositories, "")
}

// PolicyRepositoryObject returns a PolicyRepository with all fields that the cluster stores, or a NotInstalledError.
func (c *Cluster) PolicyRepositoryObject(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return c.object(ctx, v1alpha1.PolicyRepositories, name)
}

// PolicyRepository returns a PolicyRepository, or a NotInstalledError.
func (c *Cluster) PolicyRepository(ctx context.Context, name string) (*v1alpha1.PolicyRepository, error) {
	object, err := c.PolicyRepositoryObject(ctx, name)
	if err != nil {
		return nil, err
	}
	return Decode[v1alpha1.PolicyRepository](object)
}
