package constraint

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// constraints are all constraints of the cluster, defaulted and in the order in which scc.Review tries them.
type constraints struct {
	sorted   []*v1alpha1.SecurityContextConstraints
	revision string
}

// Revision returns a hash of the constraints. It changes whenever one is created, changed or deleted.
func (c constraints) Revision() string { return c.revision }

// contain reports whether an object is one of the constraints, with the same generation.
func (c constraints) contain(object *v1alpha1.SecurityContextConstraints) bool {
	return slices.ContainsFunc(c.sorted, func(own *v1alpha1.SecurityContextConstraints) bool {
		return own.UID == object.UID && own.Generation == object.Generation
	})
}

// constraintCache provides the constraints of the cluster. Callers must not change them.
type constraintCache struct {
	*webhook.RevisionCache[constraints]
}

// newConstraintCache returns a cache of the constraints that uses the informer of cached. live reads from the API
// server.
func newConstraintCache(ctx context.Context, cached cache.Cache, live client.Reader) (*constraintCache, error) {
	c := &constraintCache{webhook.NewRevisionCache(cached, live, readConstraints)}
	return c, watch.OnChange(ctx, cached, client.Object(&v1alpha1.SecurityContextConstraints{}), c.Replace)
}

// get returns the constraints of the cache.
func (c *constraintCache) get(ctx context.Context) ([]*v1alpha1.SecurityContextConstraints, error) {
	all, err := c.Cached(ctx)
	return all.sorted, err
}

// at returns constraints that are not older than a revision.
func (c *constraintCache) at(ctx context.Context, revision string) ([]*v1alpha1.SecurityContextConstraints, error) {
	all, err := c.At(ctx, revision)
	return all.sorted, err
}

// isWrittenFor reports whether a webhook was generated from constraints that contain one.
func (c *constraintCache) isWrittenFor(
	config admissionregistrationv1.WebhookClientConfig, one *v1alpha1.SecurityContextConstraints,
) bool {
	all, isKnown := c.OfWebhooks(func(revision string) bool {
		return webhook.HasRevision(config, pluginName, revision)
	})
	return isKnown && all.contain(one)
}

func readConstraints(ctx context.Context, from client.Reader, options ...client.ListOption) (constraints, error) {
	list := &v1alpha1.SecurityContextConstraintsList{}
	if err := from.List(ctx, list, options...); err != nil {
		return constraints{}, fmt.Errorf("list SecurityContextConstraints: %w", err)
	}
	var sum attributes.Sum
	sorted := make([]*v1alpha1.SecurityContextConstraints, 0, len(list.Items))
	for i := range list.Items {
		sum.Add(&list.Items[i])
		sorted = append(sorted, scc.Defaulted(&list.Items[i]))
	}
	scc.Sort(sorted)
	return constraints{sorted, sum.Revision()}, nil
}
