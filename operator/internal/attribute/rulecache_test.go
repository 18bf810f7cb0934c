package attribute

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// changing lists one rule of the cluster, whose generation changes.
type changing struct {
	client.Reader
	generation atomic.Int64
}

func (c *changing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if list, ok := list.(*v1alpha1.ClusterProtectedAttributeList); ok {
		list.Items = []v1alpha1.ClusterProtectedAttribute{generationOf(c.generation.Load())}
	}
	return nil
}

func generationOf(generation int64) v1alpha1.ClusterProtectedAttribute {
	var rule v1alpha1.ClusterProtectedAttribute
	rule.UID, rule.Generation = "a", generation
	return rule
}

// While the rules change, those from before a change are never taken for those after it.
func TestRulesAreNotOlderThanTheRevision(t *testing.T) {
	t.Parallel()
	const changes = 100_000
	generations := map[string]int64{}
	var revisions []string
	for i := range int64(changes) {
		revision := attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{generationOf(i)}, nil).Revision()
		revisions, generations[revision] = append(revisions, revision), i
	}
	stored := &changing{}
	c := &RuleCache{cached: stored, live: stored, reached: map[string]bool{}}
	var newest atomic.Int64 // that a request has
	go func() {
		for i := range int64(changes) {
			before, now := generationOf(i-1), generationOf(i)
			stored.generation.Store(i)
			newest.Store(i)
			if i == 0 {
				c.replace(nil, &now)
			} else {
				c.replace(&before, &now)
			}
		}
	}()
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for wanted := int64(0); wanted < changes-1; {
				wanted = newest.Load()
				rules, err := c.At(t.Context(), revisions[wanted])
				if !assert.NoError(t, err) || !assert.GreaterOrEqual(t, generations[rules.Revision()], wanted) {
					return
				}
			}
		})
	}
	readers.Wait()
}
