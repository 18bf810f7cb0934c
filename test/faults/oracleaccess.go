package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// user returns the name of the user that RoleBindings of templates grant access in the run's namespaces.
func (r *run) user() string { return r.name("user") }

// watchAccess checks continuously whether the user has access in each namespace. The returned function ends that and
// returns the gaps.
func (r *run) watchAccess() (gaps func() []string) {
	longest, since := map[string]time.Duration{}, map[string]time.Time{}
	end := r.checkContinuously(func(ctx context.Context) []string {
		for _, ns := range r.namespaceNames() {
			allowed, known := r.mayRead(ctx, ns)
			switch {
			case !known:
			case allowed:
				delete(since, ns)
			default:
				if since[ns].IsZero() {
					since[ns] = time.Now()
				}
				longest[ns] = max(longest[ns], time.Since(since[ns]), time.Millisecond)
			}
		}
		return nil
	})
	return func() []string {
		end()
		if len(longest) == 0 {
			return nil
		}
		return []string{fmt.Sprintf("access was lost in %d of %d namespaces, for up to %s", len(longest), r.namespaces,
			slices.Max(slices.Collect(maps.Values(longest))).Round(time.Millisecond))}
	}
}

// mayRead reports whether the user may list ConfigMaps in a namespace, and whether the API server knows that. While it
// starts, it does not know all RoleBindings.
func (r *run) mayRead(ctx context.Context, namespace string) (allowed, known bool) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.user(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "list", Resource: "configmaps",
		},
	}}
	over := r.crashesOver.Load()
	err := r.client.Create(ctx, review)
	return review.Status.Allowed, err == nil && (review.Status.Allowed || r.crashesBegun.Load() == over)
}
