package policyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/quota"
)

// Refusals tells of what quotas of policyspaces refuse, and has the API server count again where it charged other
// quotas for it: it writes down the use of one ResourceQuota after the other, and keeps what it wrote when the next one
// is refused.
type Refusals struct {
	quotas   corev1client.ResourceQuotasGetter
	recorder events.EventRecorder
	refused  *prometheus.CounterVec
	queue    workqueue.TypedRateLimitingInterface[string]
}

// recountDelay gathers the refusals of a namespace, since each count looks at all that is in it.
const recountDelay = 500 * time.Millisecond

// recounter is the field manager of recounts.
const recounter = "nstpl-recount"

// NewRefusals returns what is to be run by every replica.
func NewRefusals(
	quotas corev1client.ResourceQuotasGetter, recorder events.EventRecorder, registerer prometheus.Registerer,
) (*Refusals, error) {
	r := &Refusals{
		quotas: quotas, recorder: recorder,
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "nstpl_policyspace_quota_refusals_total",
			Help: "Writes of what a namespace uses that the quota of a policyspace refused.",
		}, []string{"policyspace"}),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](backoff.FirstRetry, backoff.LastRetry)),
	}
	return r, registerer.Register(r.refused)
}

// NeedLeaderElection lets every replica count again after its own refusals.
func (*Refusals) NeedLeaderElection() bool { return false }

// Refusal is what was refused in a namespace.
type Refusal struct {
	Namespace string
	// Exceeded is nil if it was not for want of room.
	Exceeded *quota.ExceededError
	// Charged says that other quotas of the namespace may have been charged for it.
	Charged bool
}

// Record counts a refusal and records an Event.
func (r *Refusals) Record(refusal Refusal) {
	if refusal.Charged {
		r.queue.AddAfter(refusal.Namespace, recountDelay)
	}
	namespace, exceeded := refusal.Namespace, refusal.Exceeded
	if exceeded == nil {
		return
	}
	r.refused.WithLabelValues(exceeded.Space).Inc()
	inside := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, Namespace: namespace}
	// Events that differ in their note alone are counted as one.
	limits := slices.Sorted(maps.Keys(exceeded.Limit))
	space := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "PolicySpace", Name: exceeded.Space,
		FieldPath: fmt.Sprint("spec.quota.hard", limits),
	}
	r.recorder.Eventf(inside, space, corev1.EventTypeWarning, "PolicySpaceQuotaExceeded", "Admit", "%s",
		exceeded.Error())
}

// Start counts again until ctx ends.
func (r *Refusals) Start(ctx context.Context) error {
	go func() {
		<-ctx.Done()
		r.queue.ShutDown()
	}()
	for {
		namespace, stop := r.queue.Get()
		if stop {
			return nil
		}
		if err := r.recount(ctx, namespace); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "can't have what is used counted again", "namespace", namespace)
			r.queue.AddRateLimited(namespace)
		} else {
			r.queue.Forget(namespace)
		}
		r.queue.Done(namespace)
	}
}

// recount limits for a moment what nobody has, in each other ResourceQuota of a namespace: a change of its limits is
// what makes the API server's controller count.
func (r *Refusals) recount(ctx context.Context, namespace string) error {
	quotas := r.quotas.ResourceQuotas(namespace)
	list, err := quotas.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name!=" + v1alpha1.QuotaName})
	if err != nil {
		return err
	}
	for i := range list.Items {
		for _, limit := range []string{`"0"`, "null"} {
			body := fmt.Sprintf(`{"metadata": {"uid": %q}, "spec": {"hard": {%q: %s}}}`, list.Items[i].UID,
				v1alpha1.RecountResource, limit)
			_, err := quotas.Patch(ctx, list.Items[i].Name, types.MergePatchType, []byte(body),
				metav1.PatchOptions{FieldManager: recounter})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("ResourceQuota %s: %w", list.Items[i].Name, err)
			}
		}
	}
	return nil
}
