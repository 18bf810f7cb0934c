package attribute

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// attributeField is the index of rules by their attribute.
const attributeField = "attribute"

// RuleCache provides the rules of the cluster. It follows the informers of a cache.
type RuleCache struct {
	*webhook.RevisionCache[*attributes.Rules]

	cached, live client.Reader
	// written has the objects whose status Enforcement wrote, of both kinds.
	written freshness.Store[types.UID, client.Object]
}

// newRuleCache returns a cache of the rules that uses the informers of cached. live reads from the API server.
func newRuleCache(ctx context.Context, cached cache.Cache, live client.Reader) (*RuleCache, error) {
	c := &RuleCache{
		RevisionCache: webhook.NewRevisionCache(cached, live, readRules), cached: cached, live: live,
	}
	for _, kind := range []client.Object{&v1alpha1.ClusterProtectedAttribute{}, &v1alpha1.ProtectedAttribute{}} {
		changed := func(before, after client.Object) {
			c.observe(before, after)
			if before == nil || after == nil || before.GetUID() != after.GetUID() ||
				before.GetGeneration() != after.GetGeneration() {
				c.Replace(before, after)
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
