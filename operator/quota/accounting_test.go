package quota_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

const limit = 10

// cluster is a simulation of an API server with two namespaces, a and b, that count pods.
type cluster struct {
	space *v1alpha1.PolicySpace
	// stored is the usage that the API server stores, and cached an earlier state of it.
	stored, cached map[string]usage
	// allowed are the writes that were allowed and are not stored yet.
	allowed []write
}

type usage struct{ pods, version int64 }

// write changes a usage if it is still of the version from.
type write struct {
	namespace string
	to        usage
	from      int64
}

func newCluster() *cluster {
	return &cluster{
		space:  space(list("pods", fmt.Sprint(limit)), list("pods", "0")),
		stored: map[string]usage{"a": {0, 1}, "b": {0, 1}},
		cached: map[string]usage{"a": {0, 1}, "b": {0, 1}},
	}
}

func (c *cluster) total() int64 { return c.stored["a"].pods + c.stored["b"].pods }

func (c *cluster) request(ns string, more int64) {
	now := c.stored[ns]
	change := quota.Change{
		Namespace: ns, Old: list("pods", fmt.Sprint(now.pods)), New: list("pods", fmt.Sprint(now.pods+more)),
		Since: fmt.Sprint(now.version),
	}
	if quota.Check(c.space, change) == nil {
		c.space.Status = quota.Reserve(c.space, change)
		c.allowed = append(c.allowed, write{ns, usage{now.pods + more, now.version + 1}, now.version})
	}
}

// store stores the oldest allowed write, or loses it. The API server rejects it if another write was stored first.
func (c *cluster) store(lost bool) {
	if len(c.allowed) == 0 {
		return
	}
	w := c.allowed[0]
	c.allowed = c.allowed[1:]
	if c.stored[w.namespace].version == w.from && !lost {
		c.stored[w.namespace] = w.to
	}
}

func (c *cluster) deletePod(ns string) {
	if now := c.stored[ns]; now.pods > 0 {
		c.stored[ns] = usage{now.pods - 1, now.version + 1}
	}
}

func (c *cluster) settle(of map[string]usage) v1alpha1.PolicySpaceStatus {
	observed := map[string]quota.Usage{}
	for ns, u := range of {
		observed[ns] = quota.Usage{Used: list("pods", fmt.Sprint(u.pods)), ResourceVersion: fmt.Sprint(u.version)}
	}
	status, _ := quota.Settle(c.space, []string{"a", "b"}, observed)
	return status
}

// Requests, lost writes, deletions and controllers with stale caches follow one another at random. The stored usage
// never exceeds the limit, and without further requests the computed usage equals the stored one.
func TestUsageNeverExceedsTheLimit(t *testing.T) {
	t.Parallel()
	full := 0 // how often the limit was reached
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the tests are reproducible
		c := newCluster()
		for range 300 {
			ns := []string{"a", "b"}[r.IntN(2)]
			switch r.IntN(9) {
			case 0, 1, 2:
				c.request(ns, 1+int64(r.IntN(2)))
			case 3, 4, 5:
				c.store(r.IntN(4) == 0)
			case 6:
				c.deletePod(ns)
			default:
				if r.IntN(2) == 0 {
					c.cached[ns] = c.stored[ns]
				}
				// The controller may skip a write that only drops reservations.
				if status := c.settle(c.cached); status.Quota != c.space.Status.Quota || r.IntN(2) == 0 {
					c.space.Status = status
				}
			}
			require.LessOrEqual(t, c.total(), int64(limit), "seed %d", seed)
			if c.total() == limit {
				full++
			}
		}
		// A later version of both ResourceQuotas drops the last reservations.
		for ns, u := range c.stored {
			c.stored[ns] = usage{u.pods, u.version + 1}
		}
		require.Equal(t, fmt.Sprintf("pods: %d/%d", c.total(), limit), c.settle(c.stored).Quota, "seed %d", seed)
	}
	require.Greater(t, full, 1000, "the limit is reached often, so that a mistake would exceed it")
}
