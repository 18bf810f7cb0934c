package policyspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// cachePatience is how long the cache may take to show a state that a review names. Then the API server is asked.
	cachePatience = 100 * time.Millisecond
	// writePatience is how long the API server may take to write what a booking allowed, while the room is wanted by
	// other requests.
	writePatience = 300 * time.Millisecond
	pollInterval  = 5 * time.Millisecond
)

// confirm checks that a change goes on from what is stored: a write that goes on from anything else fails, and who
// claims it may not be the API server. Nothing is booked for such a change.
func (q *QuotaAdmission) confirm(ctx context.Context, change quota.Change) error {
	stored, err := q.counter(ctx, change.Namespace, cachePatience, func(version string) bool {
		return compare(version, change.Since) >= 0
	})
	if err == nil && compare(stored.ResourceVersion, change.Since) < 0 {
		err = q.live.Get(ctx, client.ObjectKeyFromObject(stored), stored)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ResourceQuota %s of namespace %s: %w", v1alpha1.QuotaName, change.Namespace, err)
	}
	if err != nil || stored.ResourceVersion != change.Since ||
		!equality.Semantic.DeepEqual(stored.Status.Used, change.Old) {
		return outdated(change.Namespace)
	}
	return nil
}

func outdated(namespace string) *webhook.Deferred {
	return &webhook.Deferred{Message: fmt.Sprintf("the usage of namespace %s has changed meanwhile: try again",
		namespace)}
}

// counter returns the ResourceQuota of a namespace as the cache has it once its resourceVersion is late enough, or
// after a while. It has no resourceVersion if it does not exist.
func (q *QuotaAdmission) counter(
	ctx context.Context, namespace string, patience time.Duration, late func(version string) bool,
) (*corev1.ResourceQuota, error) {
	counter := &corev1.ResourceQuota{}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(ctx context.Context) (bool, error) {
		*counter = corev1.ResourceQuota{}
		counter.Namespace, counter.Name = namespace, v1alpha1.QuotaName
		err := q.cached.Get(ctx, client.ObjectKeyFromObject(counter), counter)
		return err == nil && late(counter.ResourceVersion), client.IgnoreNotFound(err)
	})
	if wait.Interrupted(err) {
		err = nil
	}
	return counter, err
}

// compare orders resourceVersions. What is none comes first.
func compare(a, b string) int {
	order, err := resourceversion.CompareResourceVersion(a, b)
	switch {
	case err == nil:
		return order
	case a == "":
		return -1
	}
	return 1
}

// makeRoom is room, but a booking that the API server has not written down in a while does not stand in the way of a
// change: the ResourceQuota that it goes on from is written anew, so that it can't be written down any more. It returns
// what is known of such namespaces then, which is to be told to book. Without it, a booking for a review that the API
// server did not send would take room away.
func (q *QuotaAdmission) makeRoom(
	ctx context.Context, space *v1alpha1.PolicySpace, change quota.Change,
) (map[string]quota.Observed, error) {
	err := room(space, change)
	if _, exceeded := errors.AsType[*quota.ExceededError](err); !exceeded {
		return nil, err
	}
	doubtful := map[string]string{} // bookings by namespace, and since when
	without := space.DeepCopy()
	for _, booking := range space.Status.Bookings {
		counter := &corev1.ResourceQuota{}
		key := client.ObjectKey{Namespace: booking.Namespace, Name: v1alpha1.QuotaName}
		if err := q.cached.Get(ctx, key, counter); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read ResourceQuota %s of namespace %s: %w", key.Name, key.Namespace, err)
		}
		if quota.Beyond(booking, counter.Status.Used) {
			doubtful[booking.Namespace] = booking.Since
			without.Status = quota.Confirm(without, booking.Namespace, quota.Observed{Used: counter.Status.Used})
		}
	}
	if len(doubtful) == 0 || room(without, change) != nil {
		return nil, err
	}
	seen := map[string]quota.Observed{}
	settled := space.DeepCopy()
	for namespace, since := range doubtful {
		counter, renewed, err := q.conclude(ctx, space.Name, namespace, since)
		if err != nil {
			return nil, err
		}
		if renewed && namespace == change.Namespace {
			return nil, outdated(namespace)
		}
		seen[namespace] = observed(counter)
		settled.Status = quota.Confirm(settled, namespace, seen[namespace])
	}
	return seen, room(settled, change)
}

func observed(counter *corev1.ResourceQuota) quota.Observed {
	return quota.Observed{Used: counter.Status.Used, ResourceVersion: counter.ResourceVersion}
}

// conclude returns the ResourceQuota of a namespace once what is booked since a resourceVersion is written down, or
// can't be any more. It reports whether it wrote the ResourceQuota anew for that.
func (q *QuotaAdmission) conclude(
	ctx context.Context, space, namespace, since string,
) (*corev1.ResourceQuota, bool, error) {
	at := q.desk(space)
	at.concluding.Lock()
	defer at.concluding.Unlock()
	counter, err := q.counter(ctx, namespace, q.patienceWith(space, namespace, since), func(version string) bool {
		return compare(version, since) > 0
	})
	if err != nil || compare(counter.ResourceVersion, since) > 0 {
		return counter, false, err
	}
	renewed, err := RenewCounter(ctx, q.client, namespace)
	if apierrors.IsNotFound(err) {
		return counter, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("have a booking of namespace %s forgotten: %w", namespace, err)
	}
	// Whoever waits for the lock sees it then.
	_, err = q.counter(ctx, namespace, cachePatience, func(version string) bool {
		return compare(version, renewed.ResourceVersion) >= 0
	})
	return renewed, true, err
}

// patienceWith returns how much longer the API server may take to write down what is booked.
func (q *QuotaAdmission) patienceWith(space, namespace, since string) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, found := q.booked[space][namespace]
	if !found || known.since != since {
		return writePatience
	}
	return max(writePatience-time.Since(known.at), 0)
}
