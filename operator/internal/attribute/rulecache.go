package attribute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

const (
	// maxReached is the number of revisions that a RuleCache remembers. A revision that it has dropped costs one read.
	maxReached = 10_000
	// maxRemembered is the number of versions of the rules that a RuleCache remembers for Enforcement, which needs the
	// one from which the stored webhooks were generated.
	maxRemembered = 4
	// attributeField is the index of rules by their attribute.
	attributeField = "attribute"
)

// RuleCache provides the rules of the cluster. It follows the informers of a cache.
type RuleCache struct {
	cached, live client.Reader
	// changes notifies after the cached rules changed.
	changes webhook.Changes
	// written has the objects whose status Enforcement wrote, of both kinds.
	written freshness.Store[types.UID, client.Object]

	mu sync.Mutex
	// rules are the cached ones, or nil after a change.
	rules *attributes.Rules
	// sum is the sum of all rules that the informers have reported.
	sum attributes.Sum
	// reached contains the revisions than which the cache is not older.
	reached map[string]bool
	// remembered are the rules from which webhooks were generated last, in this order.
	remembered []*attributes.Rules
}

// newRuleCache returns a cache of the rules that uses the informers of cached. live reads from the API server.
func newRuleCache(ctx context.Context, cached cache.Cache, live client.Reader) (*RuleCache, error) {
	c := &RuleCache{cached: cached, live: live, reached: map[string]bool{}}
	for _, kind := range []client.Object{&v1alpha1.ClusterProtectedAttribute{}, &v1alpha1.ProtectedAttribute{}} {
		changed := func(before, after client.Object) {
			c.observe(before, after)
			if before == nil || after == nil || before.GetUID() != after.GetUID() ||
				before.GetGeneration() != after.GetGeneration() {
				c.replace(before, after)
			}
		}
		if err := watch.OnChange(ctx, cached, kind, changed); err != nil {
			return nil, err
		}
		if err := cached.IndexField(ctx, kind, attributeField, func(object client.Object) []string {
			return []string{attributeOf(object).String()}
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func attributeOf(rule client.Object) attributes.Attribute {
	switch rule := rule.(type) {
	case *v1alpha1.ClusterProtectedAttribute:
		return attributes.Rule{AttributeRule: rule.AttributeRule}.Attribute()
	case *v1alpha1.ProtectedAttribute:
		return attributes.Rule{AttributeRule: rule.AttributeRule}.Attribute()
	}
	return attributes.Attribute{}
}

// observe records that an informer has replaced an object, or its status. Either may be nil.
func (c *RuleCache) observe(before, now client.Object) {
	if before != nil && (now == nil || now.GetUID() != before.GetUID()) {
		c.written.Deleted(before.GetUID(), before.GetUID())
	}
	if now != nil {
		c.written.Observed(now.GetUID(), now.GetResourceVersion())
	}
}

// replace records that an informer has replaced an object by another. Either may be nil.
func (c *RuleCache) replace(before, now client.Object) {
	c.mu.Lock()
	if before != nil {
		c.sum.Remove(before)
	}
	if now != nil {
		c.sum.Add(now)
	}
	c.rules = nil
	c.addReached(c.sum.Revision())
	c.mu.Unlock()
	c.changes.Notify()
}

// objects returns the objects with rules, including the statuses that Enforcement has written. The caller must not
// change them.
func (c *RuleCache) objects(ctx context.Context) ([]client.Object, error) {
	return c.written.ReadAll(client.Object.GetUID, func() ([]client.Object, error) {
		cluster, namespaced := &v1alpha1.ClusterProtectedAttributeList{}, &v1alpha1.ProtectedAttributeList{}
		if err := errors.Join(c.cached.List(ctx, cluster, client.UnsafeDisableDeepCopy),
			c.cached.List(ctx, namespaced, client.UnsafeDisableDeepCopy)); err != nil {
			return nil, err
		}
		objects := make([]client.Object, 0, len(cluster.Items)+len(namespaced.Items))
		for i := range cluster.Items {
			objects = append(objects, &cluster.Items[i])
		}
		for i := range namespaced.Items {
			objects = append(objects, &namespaced.Items[i])
		}
		return objects, nil
	})
}

// ofCluster returns the rules of the cluster as the API server has them.
func (c *RuleCache) ofCluster(ctx context.Context) ([]v1alpha1.ClusterProtectedAttribute, error) {
	list := &v1alpha1.ClusterProtectedAttributeList{}
	if err := c.live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list ClusterProtectedAttributes: %w", err)
	}
	return list.Items, nil
}

// concerning returns the rules that RuleAdmission needs to decide about a rule: those of the cluster about the same
// attribute and, if the rule is one of the cluster, those of namespaces in the cache.
func (c *RuleCache) concerning(ctx context.Context, rule attributes.Rule) (*attributes.Rules, error) {
	cluster, err := c.ofCluster(ctx)
	if err != nil {
		return nil, err
	}
	cluster = slices.DeleteFunc(cluster, func(other v1alpha1.ClusterProtectedAttribute) bool {
		return attributeOf(&other) != rule.Attribute()
	})
	namespaced := &v1alpha1.ProtectedAttributeList{}
	if rule.Namespace == "" && len(cluster) == 0 {
		same := client.MatchingFields{attributeField: rule.Attribute().String()}
		if err := c.cached.List(ctx, namespaced, same, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list ProtectedAttributes: %w", err)
		}
	}
	return attributes.NewRules(cluster, namespaced.Items), nil
}

// sizes returns the bytes of the names that ProtectedAttributes protect, each counted once: those in a rule's namespace
// with the rule, and those in all. Both are 0 if another rule protects the same name, so that the rule adds none.
func (c *RuleCache) sizes(ctx context.Context, rule attributes.Rule) (own, all int, err error) {
	namespaced := &v1alpha1.ProtectedAttributeList{}
	if err := c.cached.List(ctx, namespaced, client.UnsafeDisableDeepCopy); err != nil {
		return 0, 0, fmt.Errorf("list ProtectedAttributes: %w", err)
	}
	ofNamespace := map[attributes.Attribute]bool{rule.Attribute(): true}
	names := map[attributes.Attribute]bool{rule.Attribute(): true}
	for i := range namespaced.Items {
		object := &namespaced.Items[i]
		if object.Namespace == rule.Namespace && object.Name == rule.Object {
			continue
		}
		attribute := attributes.Attribute{Kind: object.AttributeKind, Name: object.AttributeName}
		if attribute == rule.Attribute() {
			return 0, 0, nil
		}
		names[attribute] = true
		if object.Namespace == rule.Namespace {
			ofNamespace[attribute] = true
		}
	}
	for attribute := range names {
		all += len(attribute.Name)
		if ofNamespace[attribute] {
			own += len(attribute.Name)
		}
	}
	return own, all, nil
}

// protects reports whether a rule of the cluster in the cache protects an attribute.
func (c *RuleCache) protects(ctx context.Context, attribute attributes.Attribute) (bool, error) {
	found := &v1alpha1.ClusterProtectedAttributeList{}
	if err := c.cached.List(ctx, found, client.MatchingFields{attributeField: attribute.String()}, client.Limit(1),
		client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list ClusterProtectedAttributes: %w", err)
	}
	return len(found.Items) > 0, nil
}

// remember keeps rules from which webhooks are generated.
func (c *RuleCache) remember(rules *attributes.Rules) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remembered = slices.DeleteFunc(c.remembered, func(r *attributes.Rules) bool {
		return r.Revision() == rules.Revision()
	})
	if len(c.remembered) == maxRemembered {
		c.remembered = slices.Delete(c.remembered, 0, 1)
	}
	c.remembered = append(c.remembered, rules)
}

// ofWebhooks returns the rules from which the first of some webhooks that the cache remembers was generated, or nil.
func (c *RuleCache) ofWebhooks(generatedFrom func(revision string) bool) *attributes.Rules {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rules := range slices.Backward(c.remembered) {
		if generatedFrom(rules.Revision()) {
			return rules
		}
	}
	return nil
}

// Cached returns the rules of the cache.
func (c *RuleCache) Cached(ctx context.Context) (*attributes.Rules, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules != nil {
		return c.rules, nil
	}
	rules, err := readRules(ctx, c.cached, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	c.rules = rules
	c.addReached(rules.Revision())
	return rules, nil
}

// addReached requires that the caller holds the lock.
func (c *RuleCache) addReached(revision string) {
	if len(c.reached) >= maxReached {
		clear(c.reached)
	}
	c.reached[revision] = true
}

// At returns rules that are not older than a revision; an empty revision stands for any. If the cache has not reached
// the revision, At reads the rules from the API server.
func (c *RuleCache) At(ctx context.Context, revision string) (*attributes.Rules, error) {
	c.mu.Lock()
	reached := revision == "" || c.reached[revision] // before the rules are read, which may change then
	c.mu.Unlock()
	cached, err := c.Cached(ctx)
	if err == nil && (reached || cached.Revision() == revision) {
		return cached, nil
	}
	live, err := readRules(ctx, c.live)
	if err != nil {
		return nil, err
	}
	if cached != nil && cached.Revision() == live.Revision() {
		c.mu.Lock()
		c.addReached(revision)
		c.mu.Unlock()
	}
	return live, nil
}

func readRules(ctx context.Context, from client.Reader, options ...client.ListOption) (*attributes.Rules, error) {
	cluster, namespaced := &v1alpha1.ClusterProtectedAttributeList{}, &v1alpha1.ProtectedAttributeList{}
	if err := from.List(ctx, cluster, options...); err != nil {
		return nil, fmt.Errorf("list ClusterProtectedAttributes: %w", err)
	}
	if err := from.List(ctx, namespaced, options...); err != nil {
		return nil, fmt.Errorf("list ProtectedAttributes: %w", err)
	}
	return attributes.NewRules(cluster.Items, namespaced.Items), nil
}
