package policyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// spacesOf returns the policy spaces in which the usage of a namespace with a usage quota is counted, the nearest
// first. The operator creates that quota for namespaces in policy spaces, so a cache in which this one is in none may
// be late.
func (q *QuotaAdmission) spacesOf(ctx context.Context, namespace string) ([]string, error) {
	ns, err := q.getNamespace(ctx, namespace)
	if err != nil {
		return nil, err
	}
	names, err := q.chargedBy(ctx, ns)
	if err != nil || len(names) > 0 {
		return names, err
	}
	ns = &corev1.Namespace{}
	if err := q.live.Get(ctx, client.ObjectKey{Name: namespace}, ns); err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return q.chargedBy(ctx, ns)
}

// getNamespace reads a namespace from the cache, or from the API server if the cache does not contain it yet.
func (q *QuotaAdmission) getNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := q.cached.Get(ctx, client.ObjectKey{Name: name}, ns, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = q.live.Get(ctx, client.ObjectKey{Name: name}, ns)
	}
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns, nil
}

// chargedBy returns the policy spaces in which the usage of a namespace is counted, the nearest first. It returns a
// webhook.Deferred if the namespace is moving to a policy space that does not count its usage yet.
func (q *QuotaAdmission) chargedBy(ctx context.Context, ns *corev1.Namespace) ([]string, error) {
	names, err := chargedBy(ctx, q.cached, ns)
	if err != nil {
		return nil, err
	}
	hasDeleted, err := q.hasDeletedSpace(ctx, ns)
	if err != nil {
		return nil, err
	}
	if hasDeleted {
		// The namespace may be moving to another policy space in a change that the cache does not contain yet.
		ns = ns.DeepCopy()
		if err := q.live.Get(ctx, client.ObjectKeyFromObject(ns), ns); err != nil {
			return nil, err
		}
		if names, err = chargedBy(ctx, q.cached, ns); err != nil {
			return nil, err
		}
	}
	return names, q.checkMoves(ctx, ns)
}

// hasDeletedSpace reports whether the depth labels of a namespace name a policy space that does not exist.
func (q *QuotaAdmission) hasDeletedSpace(ctx context.Context, ns *corev1.Namespace) (bool, error) {
	for _, name := range hierarchy.SpacesOf(ns) {
		if space, err := getSpace(ctx, q.cached, name); err != nil || space == nil {
			return err == nil, err
		}
	}
	return false, nil
}

// checkMoves returns a webhook.Deferred if a namespace is moving to a policy space that does not count usage of the one
// that it replaces yet.
func (q *QuotaAdmission) checkMoves(ctx context.Context, ns *corev1.Namespace) error {
	destination, err := hierarchy.DestinationOf(ns, gettingSpaces(ctx, q.cached))
	if err != nil {
		return err
	}
	for _, replacement := range hierarchy.Replacements(hierarchy.SpacesOf(ns), destination) {
		space, err := getSpace(ctx, q.cached, replacement.New)
		if err != nil {
			return err
		}
		old, err := getSpace(ctx, q.cached, replacement.Old)
		if err != nil {
			return err
		}
		if space != nil && mayReplace(space, old, int(space.Status.Namespaces)) &&
			shareIndex(space.Status, replacement.Old) < 0 {
			return webhook.Defer(codes.QuotaUncounted,
				fmt.Sprintf("namespace %s is moving to policyspace %s: try again in a moment", ns.Name, space.Name),
				webhook.RetryAfter)
		}
	}
	return nil
}

// passing returns a webhook.Deferred instead of an error that a limit is exceeded, if it is only as long as a namespace
// moves: the limit is that of a policy space which the namespace of the request leaves, or which shares usage. Any
// other error is returned as it is.
func (q *QuotaAdmission) passing(ctx context.Context, namespace string, err error) error {
	exceeded, isExceeded := errors.AsType[*quota.ExceededError](err)
	if !isExceeded {
		return err
	}
	if deferred := deferredByShare(exceeded); deferred != nil {
		return deferred
	}
	ns, errRead := q.getNamespace(ctx, namespace)
	if errRead != nil {
		return errRead
	}
	destination, errRead := hierarchy.DestinationOf(ns, gettingSpaces(ctx, q.cached))
	stays := len(destination) == 0 && ns.Labels[v1alpha1.PolicySpaceLabel] != ""
	if errRead != nil || stays || slices.Contains(destination, exceeded.Space) {
		return errors.Join(errRead, err)
	}
	return webhook.Defer(codes.QuotaExceeded, fmt.Sprintf("%s: namespace %s is leaving policyspace %q: try again in a moment",
		exceeded.Error(), namespace, exceeded.Space), webhook.RetryAfter)
}

// readerFor returns from where to read the policy spaces that charge a change: the cache, or the API server if the
// cache is late. A usage quota has only resources that its policy spaces limit, so one of them limits each.
func (q *QuotaAdmission) readerFor(ctx context.Context, spaces []string, change quota.Change) (client.Reader, error) {
	unlimited := change.Adds()
	for _, name := range spaces {
		space, err := getSpace(ctx, q.cached, name)
		if err != nil {
			return nil, err
		}
		if space == nil {
			continue
		}
		hard := quota.Objects(space)
		unlimited = slices.DeleteFunc(unlimited, func(name corev1.ResourceName) bool {
			_, isLimited := hard[name]
			return isLimited
		})
	}
	if len(unlimited) > 0 {
		return q.live, nil
	}
	return q.cached, nil
}

// checkRoom checks that all policy spaces have room for a change before usage is reserved in any of them. It reads a
// policy space from the API server before it denies a change, because the cache may be out of date.
func (q *QuotaAdmission) checkRoom(
	ctx context.Context, known client.Reader, spaces []string, change quota.Change,
) error {
	for _, name := range spaces {
		cached, err := getSpace(ctx, known, name)
		if err == nil && cached != nil && quota.Check(cached, change) == nil {
			continue
		}
		space, err := getSpace(ctx, q.live, name)
		if err != nil {
			return err
		}
		if space == nil {
			if cached != nil {
				return outdated(change.Namespace) // by now it may be in another policy space
			}
			continue
		}
		if _, err := q.reclaimRoom(ctx, space, change); err != nil {
			return err
		}
	}
	return nil
}
