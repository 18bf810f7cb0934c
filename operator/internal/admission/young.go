package admission

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/counters"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// young is how old a namespace is at most while it may not be counted yet what is used in it.
	young = 10 * time.Second
	// youngPatience is how long who creates something in it waits at most, and lookAgain how often it is looked at meanwhile.
	youngPatience, lookAgain = 5 * time.Second, 20 * time.Millisecond
)

// counted returns the policyspaces of a namespace once the API server counts in it what a request creates, if it is a young one. What
// was created before, nothing would charge. Most users are held until then: this is for those who may initialize namespaces. The error
// is a quota.UncountedError if it takes too long.
func (t *Turns) counted(ctx context.Context, namespace string, created schema.GroupResource) ([]string, error) {
	patience := time.NewTimer(youngPatience)
	defer patience.Stop()
	for {
		ns, err := t.quota.namespace(ctx, namespace)
		if err != nil {
			return nil, err
		}
		spaces := hierarchy.SpacesOf(ns)
		if time.Since(ns.CreationTimestamp.Time) > young {
			return spaces, nil
		}
		uncounted, err := t.uncounted(ctx, ns, spaces, created)
		if err != nil || uncounted == nil {
			return spaces, err
		}
		select {
		case <-time.After(lookAgain):
		case <-patience.C:
			return nil, uncounted
		case <-ctx.Done():
			return nil, uncounted
		}
	}
}

// uncounted says what of a resource is not counted in a namespace, or nil.
func (t *Turns) uncounted(ctx context.Context, ns *corev1.Namespace, spaces []string, created schema.GroupResource) (*quota.UncountedError, error) {
	if name := ns.Labels[v1alpha1.PolicySpaceLabel]; len(spaces) == 0 {
		space, err := t.quota.get(ctx, t.quota.cached, name)
		if err != nil || space == nil { // it is in none, then
			return nil, err
		}
		return &quota.UncountedError{Space: name, Resources: []string{created.String()}}, nil
	}
	counter := &corev1.ResourceQuota{}
	err := t.quota.cached.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: v1alpha1.QuotaName}, counter, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ResourceQuota %s of namespace %s: %w", v1alpha1.QuotaName, ns.Name, err)
	}
	used := counters.Used(counter)
	for _, name := range spaces {
		space, err := t.quota.get(ctx, t.quota.cached, name)
		if err != nil {
			return nil, err
		}
		if space == nil {
			continue
		}
		for limit := range quota.Hard(space) {
			if _, counted := used[limit]; !counted && !quota.Early(limit) && quota.Requested(limit) == created {
				return &quota.UncountedError{Space: name, Resources: []string{string(limit)}}, nil
			}
		}
	}
	return nil, nil
}
