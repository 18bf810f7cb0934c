package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/quota"
)

// apiServer is who writes down what a request that is let in uses. Others count again what is there already.
const apiServer = "system:apiserver"

// Quota holds what the API server is about to write down of what a namespace uses against the quotas of all policyspaces above. What
// it lets in it books in their statuses, each of which is written on condition that nobody else did: so all replicas agree, and none
// needs to remember anything.
type Quota struct {
	// cached and live read PolicySpaces and Namespaces.
	cached, live client.Reader
	statuses     client.SubResourceWriter
	onRefusal    func(namespace string, exceeded *quota.ExceededError)

	mu sync.Mutex
	// desks are where bookings of a space queue, so that those of this replica don't get into each other's way.
	desks map[string]*desk
}

type desk struct {
	mu sync.Mutex
	// last is the space as it was after the last booking, which the cache may not know yet.
	last *v1alpha1.PolicySpace
}

// NewQuota returns the validator. onRefusal is called, at most as often as requests are refused, with whom it was and why.
func NewQuota(
	ctx context.Context, cached cache.Cache, live client.Reader, statuses client.SubResourceWriter, onRefusal func(string, *quota.ExceededError),
) (*Quota, error) {
	for _, object := range []client.Object{&v1alpha1.PolicySpace{}, &corev1.Namespace{}} {
		if _, err := cached.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	return &Quota{cached: cached, live: live, statuses: statuses, onRefusal: onRefusal, desks: map[string]*desk{}}, nil
}

// Validate is asked about updates of the statuses of ResourceQuotas.
func (q *Quota) Validate(ctx context.Context, request *Request) error {
	if request.SubResource != "status" || request.Name != v1alpha1.QuotaName || request.Object == nil || request.OldObject == nil {
		return nil
	}
	change, err := changeOf(request)
	if err != nil || len(change.Adds()) == 0 {
		return err
	}
	spaces, err := q.spacesOf(ctx, request.Namespace)
	if err != nil {
		return err
	}
	checked := request.UserInfo.Username == apiServer
	if checked {
		if err := q.check(ctx, spaces, change); err != nil {
			return q.refuse(request, err)
		}
	}
	if request.DryRun != nil && *request.DryRun {
		return nil
	}
	for _, space := range spaces {
		if err := q.book(ctx, space, change, checked); err != nil {
			return q.refuse(request, err)
		}
	}
	return nil
}

// refuse makes an objection of what a quota says, and tells of it. Any other error leaves the request undecided.
func (q *Quota) refuse(request *Request, err error) error {
	if exceeded, ok := errors.AsType[*quota.ExceededError](err); ok {
		if request.DryRun == nil || !*request.DryRun {
			q.onRefusal(request.Namespace, exceeded)
		}
		return &Refused{exceeded.Error()}
	}
	if uncounted, ok := errors.AsType[*quota.UncountedError](err); ok {
		return &Refused{uncounted.Error()}
	}
	return err
}

func changeOf(request *Request) (quota.Change, error) {
	before, after := &corev1.ResourceQuota{}, &corev1.ResourceQuota{}
	err := errors.Join(
		runtime.DefaultUnstructuredConverter.FromUnstructured(request.OldObject.Object, before),
		runtime.DefaultUnstructuredConverter.FromUnstructured(request.Object.Object, after))
	if err != nil {
		return quota.Change{}, fmt.Errorf("read ResourceQuota %s of namespace %s: %w", request.Name, request.Namespace, err)
	}
	return quota.Change{
		Namespace: request.Namespace, Old: before.Status.Used, New: after.Status.Used, Since: before.ResourceVersion,
	}, nil
}

// spacesOf returns the policyspaces that a namespace is in by the labels which the operator keeps, the nearest first.
func (q *Quota) spacesOf(ctx context.Context, namespace string) ([]string, error) {
	ns := &corev1.Namespace{}
	err := q.cached.Get(ctx, client.ObjectKey{Name: namespace}, ns, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = q.live.Get(ctx, client.ObjectKey{Name: namespace}, ns)
	}
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", namespace, err)
	}
	return hierarchy.SpacesOf(ns), nil
}

// check looks at all spaces before anything is booked in one. What the cache has against a request may be out of date.
func (q *Quota) check(ctx context.Context, spaces []string, change quota.Change) error {
	for _, name := range spaces {
		space, err := q.get(ctx, q.cached, name)
		if err == nil && space != nil {
			err = quota.Check(space, change)
		}
		if err == nil && space != nil {
			continue
		}
		if space, err = q.get(ctx, q.live, name); err != nil {
			return err
		}
		if space == nil {
			continue
		}
		if err := quota.Check(space, change); err != nil {
			return err
		}
	}
	return nil
}

// get returns a space, or nil if there is none.
func (q *Quota) get(ctx context.Context, from client.Reader, name string) (*v1alpha1.PolicySpace, error) {
	space := &v1alpha1.PolicySpace{}
	err := from.Get(ctx, client.ObjectKey{Name: name}, space, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read policyspace %s: %w", name, err)
	}
	return space, nil
}

// book writes a change down in a space that limits it, unless the space turns out to have no room for it.
func (q *Quota) book(ctx context.Context, name string, change quota.Change, checked bool) error {
	at := q.desk(name)
	at.mu.Lock()
	defer at.mu.Unlock()
	space, err := q.get(ctx, q.cached, name)
	if err != nil {
		return err
	}
	space = newer(at.last, space)
	for {
		if space == nil || !limits(space, change) {
			if space, err = q.get(ctx, q.live, name); err != nil || space == nil || !limits(space, change) {
				return err
			}
		}
		if checked {
			if err := quota.Check(space, change); err != nil {
				return err
			}
		}
		booked := space.DeepCopy()
		booked.Status = quota.Book(space, change)
		err := q.statuses.Update(ctx, booked)
		switch {
		case err == nil:
			at.last = booked
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return fmt.Errorf("book in policyspace %s: %w", name, err)
		}
		if space, err = q.get(ctx, q.live, name); err != nil {
			return err
		}
	}
}

func (q *Quota) desk(space string) *desk {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.desks[space] == nil {
		q.desks[space] = &desk{}
	}
	return q.desks[space]
}

// limits tells whether a space limits anything that a change adds to.
func limits(space *v1alpha1.PolicySpace, change quota.Change) bool {
	hard := quota.Hard(space)
	for _, name := range change.Adds() {
		if _, limited := hard[name]; limited {
			return true
		}
	}
	return false
}

// newer returns the later state of a space. Either may be missing; a space that is another one by now is that of the cache.
func newer(last, cached *v1alpha1.PolicySpace) *v1alpha1.PolicySpace {
	if last == nil || cached == nil || last.UID != cached.UID {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(last.ResourceVersion, cached.ResourceVersion); err == nil && order > 0 {
		return last
	}
	return cached
}
