package policyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// bookingTimeout is more than the API server waits.
const bookingTimeout = 10 * time.Second

// desk writes the bookings of a space: those that come while one write is under way are written together by the next
// one.
type reservationWriter struct {
	mu      sync.Mutex
	busy    bool
	waiting []*reservation
	// last is the space as it was after the last booking, which the cache may not know yet. Only who is busy uses it.
	last *v1alpha1.PolicySpace

	// concluding is held while bookings are waited for that stand in the way of others.
	concluding sync.Mutex
}

type reservation struct {
	change quota.Change
	// seen is what is known of namespaces whose bookings stood in the way.
	seen map[string]quota.Observed
	// shared are the policyspaces that the space shares usage with when this is booked. They are read after done.
	shared []v1alpha1.PolicySpaceShare
	done   chan error
}

// bookAll books in the spaces that limit a change, the nearest first: what that one refuses is booked in none above.
// What is booked below one that refuses is let go in a while. A space may share usage with one that the cache does not
// know of.
func (q *QuotaAdmission) bookAll(ctx context.Context, spaces []string, change quota.Change) error {
	booked := map[string]bool{}
	var shared []string
	one := func(name string) error {
		space, err := q.get(ctx, q.cached, name)
		if err != nil || space == nil || booked[name] || !limits(space, change) {
			return err
		}
		booked[name] = true
		with, err := q.insist(ctx, name, change)
		for _, share := range with {
			shared = append(shared, share.Name)
		}
		return err
	}
	for _, name := range spaces {
		if err := one(name); err != nil {
			return err
		}
	}
	for _, name := range slices.Clone(shared) { // theirs with others are not this namespace's
		if err := one(name); err != nil {
			return err
		}
	}
	return nil
}

// insist books a change in a space unless it has no room for it, whatever is booked for writes that never come. It
// returns what the space shares usage with.
func (q *QuotaAdmission) insist(
	ctx context.Context, name string, change quota.Change,
) ([]v1alpha1.PolicySpaceShare, error) {
	var seen map[string]quota.Observed
	for {
		shared, err := q.book(ctx, name, change, seen)
		if _, exceeded := errors.AsType[*quota.ExceededError](err); !exceeded {
			return shared, err
		}
		space, err := q.get(ctx, q.live, name)
		if err != nil || space == nil {
			return nil, err
		}
		if seen, err = q.makeRoom(ctx, space, change); err != nil {
			return nil, err
		}
	}
}

// book writes a change down in a space, unless the space turns out to have no room for it.
func (q *QuotaAdmission) book(
	ctx context.Context, name string, change quota.Change, seen map[string]quota.Observed,
) ([]v1alpha1.PolicySpaceShare, error) {
	at := q.desk(name)
	mine := &reservation{change: change, seen: seen, done: make(chan error, 1)}
	at.mu.Lock()
	at.waiting = append(at.waiting, mine)
	if !at.busy {
		at.busy = true
		go q.serve(context.WithoutCancel(ctx), name, at) // for others too
	}
	at.mu.Unlock()
	select {
	case err := <-mine.done:
		return mine.shared, err
	case <-ctx.Done():
		return nil, fmt.Errorf("book in policyspace %s: %w", name, ctx.Err())
	}
}

// serve writes bookings until none waits.
func (q *QuotaAdmission) serve(ctx context.Context, name string, at *reservationWriter) {
	for {
		at.mu.Lock()
		batch := at.waiting
		at.waiting = nil
		at.busy = len(batch) > 0
		at.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		writing, cancel := context.WithTimeout(ctx, bookingTimeout)
		errs, err := q.write(writing, name, at, batch)
		cancel()
		for i, one := range batch {
			if err != nil {
				one.done <- fmt.Errorf("book in policyspace %s: %w", name, err)
			} else {
				one.done <- errs[i]
			}
		}
	}
}

// write books in turn what there is room for, in one write. It returns what is to be said of each booking.
func (q *QuotaAdmission) write(
	ctx context.Context, name string, at *reservationWriter, batch []*reservation,
) ([]error, error) {
	cached, err := q.get(ctx, q.cached, name)
	if err != nil {
		return nil, err
	}
	space := newer(at.last, cached)
	for live := false; ; live = true {
		if live || space == nil {
			if space, err = q.get(ctx, q.live, name); err != nil {
				return nil, err
			}
		}
		errs := make([]error, len(batch))
		if space == nil {
			for i, one := range batch {
				errs[i] = outdated(one.change.Namespace) // it may count elsewhere by now
			}
			return errs, nil
		}
		booked := space.DeepCopy()
		news := false
		for i, one := range batch {
			if !limits(booked, one.change) {
				continue
			}
			for namespace, seen := range one.seen {
				booked.Status = quota.Confirm(booked, namespace, seen)
			}
			if errs[i] = room(booked, one.change); errs[i] == nil {
				booked.Status, news = quota.Book(booked, one.change), true
			}
		}
		if !news && !live {
			continue // what was read last may be out of date
		}
		if !news {
			return errs, nil
		}
		switch err := q.client.Status().Update(ctx, booked); {
		case err == nil:
			at.last = booked
			for _, one := range batch {
				one.shared = booked.Status.SharedWith
			}
			return errs, nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return nil, err
		}
	}
}

func (q *QuotaAdmission) desk(space string) *reservationWriter {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.desks[space] == nil {
		q.desks[space] = &reservationWriter{}
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

// newer returns the later state of a space. Either may be missing; a space that is another one by now is that of the
// cache.
func newer(last, cached *v1alpha1.PolicySpace) *v1alpha1.PolicySpace {
	if last == nil || cached == nil || last.UID != cached.UID {
		return cached
	}
	if order, err := resourceversion.CompareResourceVersion(last.ResourceVersion, cached.ResourceVersion); err == nil &&
		order > 0 {
		return last
	}
	return cached
}
