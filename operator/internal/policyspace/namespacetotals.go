package policyspace

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// placingTime is longer than the API server may take to store a namespace after it asked admission. It ends every
	// request after 34 seconds. Then a reservation without a namespace ends.
	placingTime = 40 * time.Second
	// missingTime is how long a policy space that labels of namespaces name is not looked for again.
	missingTime = time.Second
)

// namespaceTotals counts the namespaces in and below policy spaces, by their labels and by the hierarchy. It is safe
// for concurrent use.
type namespaceTotals struct {
	cached, live client.Reader
	census       *census

	mu sync.Mutex
	// forest is the hierarchy of the cache, and hasForest whether it is up to date.
	forest    hierarchy.Forest
	hasForest bool
	// missing has the names of policy spaces that labels name and that did not exist lately.
	missing *utilcache.Expiring
	// reservations are those for namespaces.
	reservations knownReservations
}

// newNamespaceTotals returns totals. changes notifies of changes of the specs of policy spaces.
func newNamespaceTotals(cached, live client.Reader, census *census, changes *webhook.Changes) *namespaceTotals {
	c := &namespaceTotals{cached: cached, live: live, census: census, missing: utilcache.NewExpiring()}
	changes.Listen(func() {
		c.mu.Lock()
		c.hasForest = false
		c.mu.Unlock()
		census.needsChanged()
	})
	return c
}

// limitingNamespaces returns the cached policy spaces that limit the number of namespaces.
func limitingNamespaces(ctx context.Context, cached client.Reader) ([]*v1alpha1.PolicySpace, error) {
	list := &v1alpha1.PolicySpaceList{}
	if err := cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list policyspaces: %w", err)
	}
	var limiting []*v1alpha1.PolicySpace
	for i := range list.Items {
		if quota.LimitsNamespaces(&list.Items[i]) {
			limiting = append(limiting, &list.Items[i])
		}
	}
	return limiting, nil
}

func (c *namespaceTotals) cachedForest(ctx context.Context) (hierarchy.Forest, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasForest {
		return c.forest, nil
	}
	forest, _, err := readForest(ctx, c.cached)
	if err != nil {
		return hierarchy.Forest{}, fmt.Errorf("list policyspaces: %w", err)
	}
	c.forest, c.hasForest = forest, true
	return forest, nil
}

// below returns the names of a policy space and of those below it. A policy space that the cache does not contain, and
// that a namespace is in, is read from the API server: the cache may be late.
func (c *namespaceTotals) below(ctx context.Context, space string) (map[string]bool, error) {
	forest, err := c.cachedForest(ctx)
	if err != nil {
		return nil, err
	}
	below := forest.Below(space)
	for _, name := range c.census.spaces() {
		if _, isMissing := c.missing.Get(name); below[name] || forest.Get(name) != nil || isMissing {
			continue
		}
		lineage, err := Lineage(ctx, c.live, name)
		if err != nil {
			return nil, err
		}
		if len(lineage) == 0 {
			c.missing.Set(name, true, missingTime)
		}
		for _, ancestor := range lineage {
			below[name] = below[name] || below[ancestor.Name]
		}
	}
	return below, nil
}

// use counts the namespaces in and below a policy space, without the one that is about to be placed there.
func (c *namespaceTotals) use(
	ctx context.Context, space *v1alpha1.PolicySpace, about v1alpha1.NamespaceReservation,
) (quota.NamespaceUse, error) {
	below, err := c.below(ctx, space.Name)
	if err != nil {
		return quota.NamespaceUse{}, err
	}
	return c.census.count(below, space.Status.NamespaceReservations, about), nil
}

// settle returns the status of a policy space with the number of its namespaces and without the reservations that have
// ended, and when the next reservation may expire: 0 if there is none.
func (c *namespaceTotals) settle(
	ctx context.Context, space *v1alpha1.PolicySpace,
) (status v1alpha1.PolicySpaceStatus, wait time.Duration, err error) {
	status = *space.Status.DeepCopy()
	if !quota.LimitsNamespaces(space) {
		status.NamespaceReservations, status.NamespacesAsOf = nil, ""
		return status, 0, nil
	}
	remaining, asOf := c.census.remaining(status.NamespaceReservations)
	if remaining, wait, err = c.unexpired(ctx, space.Name, remaining); err != nil {
		return status, 0, err
	}
	status.NamespaceReservations, status.NamespacesAsOf = remaining, freshness.Newest(status.NamespacesAsOf, asOf)
	below, err := c.below(ctx, space.Name)
	if err != nil {
		return status, 0, err
	}
	use := c.census.count(below, remaining, v1alpha1.NamespaceReservation{})
	return quota.WithNamespaces(space, status, use.Existing+use.Reserved), wait, nil
}

// unexpired returns the reservations of a policy space whose namespaces may still be stored, and when the next of them
// may have expired. A reservation expires once the API server has given up its request and the namespace does not
// exist.
func (c *namespaceTotals) unexpired(
	ctx context.Context, space string, reservations []v1alpha1.NamespaceReservation,
) (remaining []v1alpha1.NamespaceReservation, wait time.Duration, err error) {
	keys := make([]reservationKey, 0, len(reservations))
	for _, r := range reservations {
		keys = append(keys, reservationKey{string(r.UID), r.Since})
	}
	c.reservations.update(space, keys)
	for i, r := range reservations {
		if left := placingTime - c.reservations.age(space, keys[i]); left > 0 {
			remaining, wait = append(remaining, r), sooner(wait, left)
			continue
		}
		ns := &corev1.Namespace{}
		err := c.live.Get(ctx, client.ObjectKey{Name: r.Name}, ns)
		if client.IgnoreNotFound(err) != nil {
			return nil, 0, fmt.Errorf("read namespace %s: %w", r.Name, err)
		}
		if !apierrors.IsNotFound(err) && ns.UID == r.UID && ns.Labels[v1alpha1.PolicySpaceLabel] != "" &&
			freshness.Newer(ns.ResourceVersion, r.Since) {
			remaining, wait = append(remaining, r), sooner(wait, freshnessPoll) // the census will contain it
		}
	}
	return remaining, wait, nil
}
