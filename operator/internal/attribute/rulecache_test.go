package attribute

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/webhook"
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

// cacheOf returns a cache with some rules.
func cacheOf(rules *attributes.Rules) *RuleCache {
	read := func(context.Context, client.Reader, ...client.ListOption) (*attributes.Rules, error) {
		return rules, nil
	}
	return &RuleCache{RevisionCache: webhook.NewRevisionCache(nil, nil, read)}
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
	c := webhook.NewRevisionCache(stored, stored, readRules)
	var newest atomic.Int64 // that a request has
	go func() {
		for i := range int64(changes) {
			before, now := generationOf(i-1), generationOf(i)
			stored.generation.Store(i)
			newest.Store(i)
			if i == 0 {
				c.Replace(nil, &now)
			} else {
				c.Replace(&before, &now)
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

// listed lists rules of the cluster, and counts the lists.
type listed struct {
	client.Reader
	rules map[types.UID]int64
	lists int
}

func (l *listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if list, ok := list.(*v1alpha1.ClusterProtectedAttributeList); ok {
		l.lists++
		for uid, generation := range l.rules {
			list.Items = append(list.Items, ruleWith(uid, generation))
		}
	}
	return nil
}

func ruleWith(uid types.UID, generation int64) v1alpha1.ClusterProtectedAttribute {
	var rule v1alpha1.ClusterProtectedAttribute
	rule.UID, rule.Generation = uid, generation
	return rule
}

// The revision from before a rule was created is also the revision after the rule was deleted. A cache that has not
// seen the deletion has not reached it. Requests share what was read for it for a moment.
func TestARevisionThatComesBackIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, expectReadAgain)
}

func expectReadAgain(t *testing.T) {
	t.Helper()
	kept, changed, passing := ruleWith("kept", 1), ruleWith("kept", 2), ruleWith("passing", 1)
	revision := func(rules ...v1alpha1.ClusterProtectedAttribute) string {
		return attributes.NewRules(rules, nil).Revision()
	}
	cached, live := &listed{rules: map[types.UID]int64{}}, &listed{rules: map[types.UID]int64{}}
	c := webhook.NewRevisionCache(cached, live, readRules)
	expect := func(asked, want string, reads int) {
		t.Helper()
		before := live.lists
		rules, err := c.At(t.Context(), asked)
		require.NoError(t, err)
		require.Equal(t, want, rules.Revision())
		require.Equal(t, reads, live.lists-before, "reads from the API server")
	}
	cached.rules["kept"], live.rules["kept"] = 1, 1
	c.Replace(nil, &kept)
	expect(revision(kept), revision(kept), 0)

	cached.rules["passing"], live.rules["passing"] = 1, 1
	c.Replace(nil, &passing)
	expect(revision(kept, passing), revision(kept, passing), 0)
	expect(revision(kept), revision(kept, passing), 1)
	expect(revision(kept), revision(kept, passing), 0)
	delete(live.rules, "passing")
	time.Sleep(time.Second)
	expect(revision(kept), revision(kept), 1)
	delete(cached.rules, "passing")
	c.Replace(&passing, nil)
	expect(revision(kept), revision(kept), 0)
	expect(revision(kept, passing), revision(kept), 0)

	cached.rules["kept"], live.rules["kept"] = 2, 2
	c.Replace(&kept, &changed)
	expect(revision(kept), revision(changed), 0)
}
