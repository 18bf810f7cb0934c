package policyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
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
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/quota"
)

// Denials reports requests that the quotas of policy spaces denied, and makes the API server count again where it
// charged them. The API server updates the ResourceQuotas of a namespace one after the other. If it cannot update one,
// it does not undo the earlier updates.
type Denials struct {
	quotas   corev1client.ResourceQuotasGetter
	recorder events.EventRecorder
	denied   *prometheus.CounterVec
	// recounts are the namespaces in which to count again.
	recounts workqueue.TypedRateLimitingInterface[string]
}

// denialRecountDelay is how long a denial waits, so that one count follows several denials in a namespace. A count
// lists all objects in the namespace.
const denialRecountDelay = 500 * time.Millisecond

// recountTimeout limits the recount in a namespace.
const recountTimeout = 10 * time.Second

// recountManager is the field manager of the writes that request a recount.
const recountManager = "nstpl-recount"

// NewDenials returns a runnable that every replica has to run.
func NewDenials(
	quotas corev1client.ResourceQuotasGetter, recorder events.EventRecorder, registerer prometheus.Registerer,
) *Denials {
	return &Denials{
		quotas: quotas, recorder: recorder,
		denied: promauto.With(registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "nstpl_policyspace_quota_denials_total",
			Help: "Number of requests that the quota of a policyspace denied.",
		}, []string{"policyspace"}),
		recounts: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](backoff.FirstRetry, backoff.LastRetry)),
	}
}

// NeedLeaderElection returns false, because each replica requests recounts for its own denials.
func (*Denials) NeedLeaderElection() bool { return false }

// Denial is a request that was denied in a namespace.
type Denial struct {
	Namespace string
	// Exceeded is nil if the request was denied for another reason than a limit.
	Exceeded *quota.ExceededError
	// MayBeCharged is whether the API server may have charged other ResourceQuotas of the namespace for the request.
	MayBeCharged bool
}

// Record increments the metric of denials and records an Event if a limit was exceeded, and requests a recount if other
// ResourceQuotas may be charged.
func (d *Denials) Record(denial Denial) {
	if denial.MayBeCharged {
		d.recounts.AddAfter(denial.Namespace, denialRecountDelay)
	}
	namespace, exceeded := denial.Namespace, denial.Exceeded
	if exceeded == nil {
		return
	}
	d.denied.WithLabelValues(exceeded.Space).Inc()
	ns := &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, Namespace: namespace}
	// Kubernetes merges Events that differ in nothing but their notes, so the limits are in the field path.
	limits := slices.Sorted(maps.Keys(exceeded.Limit))
	space := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "PolicySpace", Name: exceeded.Space,
		FieldPath: fmt.Sprint("spec.quota.hard", limits),
	}
	d.recorder.Eventf(ns, space, corev1.EventTypeWarning, "PolicySpaceQuotaExceeded", "Admit", "%s",
		reporting.Shorten(exceeded.Error()))
}

// Start requests recounts until ctx ends.
func (d *Denials) Start(ctx context.Context) error {
	go func() {
		<-ctx.Done()
		d.recounts.ShutDown()
	}()
	for {
		namespace, isShutDown := d.recounts.Get()
		if isShutDown {
			return nil
		}
		if err := d.recount(ctx, namespace); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot request a recount of ResourceQuotas", "namespace", namespace)
			d.recounts.AddRateLimited(namespace)
		} else {
			d.recounts.Forget(namespace)
		}
		d.recounts.Done(namespace)
	}
}

// ownQuotas returns the ResourceQuotas of a namespace that are not its usage quota, as the API server has them.
func (d *Denials) ownQuotas(ctx context.Context, namespace string) ([]corev1.ResourceQuota, error) {
	list, err := d.quotas.ResourceQuotas(namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name!=" + v1alpha1.QuotaName})
	if err != nil {
		return nil, fmt.Errorf("list the ResourceQuotas of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

// recount makes the API server count again for each ResourceQuota of a namespace that is not its usage quota. It adds a
// limit for the RecountResource, of which no object exists, and removes it: Kubernetes counts when the limits change. A
// replica that shuts down completes a recount, so that the limit does not stay.
func (d *Denials) recount(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recountTimeout)
	defer cancel()
	quotas := d.quotas.ResourceQuotas(namespace)
	own, err := d.ownQuotas(ctx, namespace)
	if err != nil {
		return err
	}
	for i := range own {
		for _, limit := range []string{`"0"`, "null"} {
			body := fmt.Sprintf(`{"metadata": {"uid": %q}, "spec": {"hard": {%q: %s}}}`, own[i].UID,
				v1alpha1.RecountResource, limit)
			_, err := quotas.Patch(ctx, own[i].Name, types.MergePatchType, []byte(body),
				metav1.PatchOptions{FieldManager: recountManager})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("patch ResourceQuota %s: %w", own[i].Name, err)
			}
		}
	}
	return nil
}
