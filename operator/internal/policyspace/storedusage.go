package policyspace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// cacheTimeout is how long to wait until the cache contains a state that a review names. Then the API server is
	// asked.
	cacheTimeout = 100 * time.Millisecond
	cachePoll    = 5 * time.Millisecond
)

// checkStored checks that a change goes on from the stored usage of its namespace. The API server refuses every other
// write, and the sender of such a review may not be the API server, so no usage is reserved for it.
func (q *QuotaAdmission) checkStored(ctx context.Context, change quota.Change) error {
	stored, err := q.waitUsageQuota(ctx, change.Namespace, cacheTimeout, func(version string) bool {
		return freshness.AtLeast(version, change.Since)
	})
	if err == nil && !freshness.AtLeast(stored.ResourceVersion, change.Since) {
		err = q.live.Get(ctx, client.ObjectKeyFromObject(stored), stored)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ResourceQuota %s of namespace %s: %w", v1alpha1.QuotaName, change.Namespace, err)
	}
	if err != nil || !goesOnFrom(stored, change) {
		return outdated(change.Namespace)
	}
	return nil
}

// goesOnFrom reports whether a change goes on from the stored usage quota.
func goesOnFrom(stored *corev1.ResourceQuota, change quota.Change) bool {
	return stored.ResourceVersion == change.Since && equality.Semantic.DeepEqual(stored.Status.Used, change.Old)
}

// outdated returns an error that makes a client repeat a request.
func outdated(namespace string) *webhook.Deferred {
	return webhook.Defer(codes.Busy,
		fmt.Sprintf("the usage of namespace %s changed while the request was checked: try again", namespace), 0)
}

// waitUsageQuota returns the usage quota of a namespace from the cache as soon as isReached accepts its
// resourceVersion, or after a timeout. It has no resourceVersion if it does not exist. The caller may change it.
func (q *QuotaAdmission) waitUsageQuota(
	ctx context.Context, namespace string, timeout time.Duration, isReached func(version string) bool,
) (*corev1.ResourceQuota, error) {
	usageQuota := &corev1.ResourceQuota{}
	err := wait.PollUntilContextTimeout(ctx, cachePoll, timeout, true, func(ctx context.Context) (bool, error) {
		*usageQuota = corev1.ResourceQuota{}
		usageQuota.Namespace, usageQuota.Name = namespace, v1alpha1.QuotaName
		err := q.cached.Get(ctx, client.ObjectKeyFromObject(usageQuota), usageQuota)
		return err == nil && isReached(usageQuota.ResourceVersion), client.IgnoreNotFound(err)
	})
	if wait.Interrupted(err) {
		err = nil
	}
	return usageQuota, err
}
