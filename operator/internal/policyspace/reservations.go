package policyspace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// reservationWriteTimeout limits one write of reservations. It is longer than the API server waits for the webhook.
const reservationWriteTimeout = 10 * time.Second

// reserveAll reserves the usage after a change in each policy space that limits it, the nearest first, and in those
// with which they share usage according to their latest status. It finds the limits with known. If a policy space
// denies the change, no further reservation is made, and those already made are ended later.
func (q *QuotaAdmission) reserveAll(
	ctx context.Context, known client.Reader, spaces []string, change quota.Change,
) error {
	isReserved := map[string]bool{}
	var sharedWith []string
	for _, name := range spaces {
		shares, err := q.reserveOnce(ctx, known, name, change, isReserved)
		if err != nil {
			return err
		}
		for _, share := range shares {
			sharedWith = append(sharedWith, share.Name)
		}
	}
	for _, name := range sharedWith {
		// The namespace is not counted in the policy spaces with which this one shares usage in turn.
		if _, err := q.reserveOnce(ctx, known, name, change, isReserved); err != nil {
			return err
		}
	}
	return nil
}

// reserveOnce reserves in a policy space that limits a change, unless isReserved contains its name. It returns the
// shares of the policy space.
func (q *QuotaAdmission) reserveOnce(
	ctx context.Context, known client.Reader, name string, change quota.Change, isReserved map[string]bool,
) ([]v1alpha1.PolicySpaceShare, error) {
	space, err := getSpace(ctx, known, name)
	if err != nil || space == nil || isReserved[name] || !limits(space, change) {
		return nil, err
	}
	isReserved[name] = true
	return q.reserve(ctx, name, change)
}

// reserve reserves in a policy space. If it has no room, room is reclaimed from reservations of usage that the API
// server has not written. It returns the shares of the policy space.
func (q *QuotaAdmission) reserve(
	ctx context.Context, name string, change quota.Change,
) ([]v1alpha1.PolicySpaceShare, error) {
	var observed map[string]quota.Usage
	for {
		shares, err := q.writerOf(name).reserve(ctx, change, observed)
		if _, isExceeded := errors.AsType[*quota.ExceededError](err); !isExceeded {
			return shares, err
		}
		space, err := getSpace(ctx, q.live, name)
		if err != nil || space == nil {
			return nil, err
		}
		if observed, err = q.reclaimRoom(ctx, space, change); err != nil {
			return nil, err
		}
	}
}

func (q *QuotaAdmission) writerOf(space string) *reservationWriter {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writers[space] == nil {
		w := &reservationWriter{space: space, cached: q.cached, live: q.live, client: q.client, written: &q.written}
		w.batches.Timeout, w.batches.Write = reservationWriteTimeout, w.write
		q.writers[space] = w
	}
	return q.writers[space]
}

// reservationWriter writes the reservations of a policy space. It is safe for concurrent use.
type reservationWriter struct {
	space        string
	cached, live client.Reader
	client       client.Client
	written      *freshness.Store[string, *v1alpha1.PolicySpace]
	batches      webhook.Batches[*reservation]
	// reclaiming is held while a request waits for the end of reservations.
	reclaiming sync.Mutex
}

// reservation is a request for a reservation.
type reservation struct {
	change quota.Change
	// observed is the usage of namespaces whose reservations have ended.
	observed map[string]quota.Usage
	// shares are the shares of the policy space as written.
	shares []v1alpha1.PolicySpaceShare
}

// reserve writes a reservation, unless the policy space has no room for it. The reservations of the namespaces in
// observed have ended. It returns the shares of the policy space.
func (w *reservationWriter) reserve(
	ctx context.Context, change quota.Change, observed map[string]quota.Usage,
) ([]v1alpha1.PolicySpaceShare, error) {
	own := &reservation{change: change, observed: observed}
	if err := w.batches.Do(ctx, own); err != nil {
		return nil, err
	}
	return own.shares, nil
}

// write writes those reservations of a batch for which there is room, in one write. It returns an error for each of the
// others. The policy space as it is known is tried first. It is read from the API server if nothing could be reserved,
// or another replica has written it since.
func (w *reservationWriter) write(ctx context.Context, batch []*reservation) ([]error, error) {
	space, err := getSpace(ctx, w.cached, w.space)
	if err != nil {
		return nil, err
	}
	if space != nil {
		space = w.written.Latest(w.space, space)
	}
	for isLive := false; ; isLive = true {
		if isLive || space == nil {
			if space, err = getSpace(ctx, w.live, w.space); err != nil {
				return nil, err
			}
		}
		status, errs := reserveBatch(space, batch)
		if status == nil {
			if space != nil && !isLive {
				continue // the known policy space may be out of date
			}
			return errs, nil
		}
		reserved := space.DeepCopy()
		reserved.Status = *status
		switch err := w.client.Status().Update(ctx, reserved); {
		case err == nil:
			w.written.Written(w.space, reserved)
			for _, one := range batch {
				one.shares = reserved.Status.SharedWith
			}
			return errs, nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reserve usage in policyspace %s: %w", w.space, err)
		}
	}
}

// reserveBatch returns the status of a policy space with those reservations of a batch for which there is room, in the
// order of the batch, and an error for each of the others. The status is nil if no reservation is added. space is nil
// if the policy space does not exist.
func reserveBatch(space *v1alpha1.PolicySpace, batch []*reservation) (*v1alpha1.PolicySpaceStatus, []error) {
	errs := make([]error, len(batch))
	if space == nil {
		for i, one := range batch {
			errs[i] = outdated(one.change.Namespace) // by now it may be in another policy space
		}
		return nil, errs
	}
	reserved := space.DeepCopy()
	isChanged := false
	for i, one := range batch {
		if !limits(reserved, one.change) {
			continue
		}
		for namespace, observed := range one.observed {
			reserved.Status = quota.Confirm(reserved, namespace, observed)
		}
		if errs[i] = checkSpace(reserved, one.change); errs[i] == nil {
			reserved.Status, isChanged = quota.Reserve(reserved, one.change), true
		}
	}
	if !isChanged {
		return nil, errs
	}
	return &reserved.Status, errs
}

// checkSpace checks that a policy space has room for a change. If it has no room for the change of several requests,
// but for that of one of them, it returns a webhook.Deferred, so that the clients try again. Otherwise the error is
// that of one request, because each client has to read what it requested.
func checkSpace(space *v1alpha1.PolicySpace, change quota.Change) error {
	err := quota.Check(space, change)
	if _, isExceeded := errors.AsType[*quota.ExceededError](err); !isExceeded {
		return err
	}
	one, isOfSeveral := change.One()
	if !isOfSeveral {
		return err
	}
	if errOfOne := quota.Check(space, one); errOfOne != nil {
		return errOfOne
	}
	return webhook.Defer(codes.Busy, fmt.Sprintf(
		"policyspace %s has room for some of the requests that arrived at the same time, but not for all: try again",
		space.Name), 0)
}

// limits reports whether a policy space limits a resource of which a change uses more.
func limits(space *v1alpha1.PolicySpace, change quota.Change) bool {
	hard := quota.Objects(space)
	for _, name := range change.Adds() {
		if _, isLimited := hard[name]; isLimited {
			return true
		}
	}
	return false
}
