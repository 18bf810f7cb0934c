package population

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// requeueSoon is when a namespace is reconciled again after a cache turned out to be behind the API server. An event of
// the cache may cause that earlier.
const requeueSoon = 250 * time.Millisecond

// done reports whether nothing is left to populate in a namespace. While it is initializing, the API server may have
// known a template that the plan did not.
func (r *Namespaces) done(ctx context.Context, plan populate.Plan, report Report) (bool, error) {
	ns := plan.Namespace
	if report.Status == corev1.ConditionFalse {
		return false, nil
	}
	if counted, err := r.Contributors.IsReady(ctx, ns); err != nil || !counted {
		return false, err // the namespace is queued again once it is
	}
	if !initialize.Initializing(ns) || !slices.Contains(initialize.Pending(ns), v1alpha1.TemplateInitializer) {
		return true, nil
	}
	wait, err := r.Templates.Behind(ctx, ns, plan.Templates)
	if err != nil {
		return false, err
	}
	if wait > 0 {
		r.Queue.Enqueue(queue.Opening, wait, ns.Name)
	}
	return wait == 0, nil
}

// pending returns the initializers that an initializing namespace waits for. It records an Event for each one that
// timed out, and queues the namespace for when the next one does.
func (r *Namespaces) pending(ctx context.Context, ns *corev1.Namespace, done bool) ([]string, error) {
	configurations := &v1alpha1.NamespaceInitializationConfigurationList{}
	if err := r.Client.List(ctx, configurations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	age := time.Since(ns.CreationTimestamp.Time)
	verdict := initialize.Judge(ns, configurations.Items, done, int64(age/time.Second))
	if len(verdict.Unknown) > 0 {
		// The API server may have added them from a configuration that the cache does not have yet.
		configurations = &v1alpha1.NamespaceInitializationConfigurationList{}
		if err := r.Live.List(ctx, configurations); err != nil {
			return nil, fmt.Errorf("list the configuration of initializers %q: %w", verdict.Unknown, err)
		}
		verdict = initialize.Judge(ns, configurations.Items, done, int64(age/time.Second))
	}
	for _, initializer := range verdict.TimedOut {
		r.recordTimeout(ctx, ns, initializer)
	}
	if verdict.NextTimeout > 0 {
		r.Queue.Enqueue(queue.Opening, time.Duration(verdict.NextTimeout)*time.Second-age, ns.Name)
	}
	return verdict.Pending, nil
}

// recordTimeout records an Event once: its name is derived from its note, so neither the next reconciliation nor the
// next process records it again.
func (r *Namespaces) recordTimeout(ctx context.Context, ns *corev1.Namespace, initializer v1alpha1.Initializer) {
	note := fmt.Sprintf("initializer %s did not finish within %d s; failurePolicy Fail: the namespace stays closed until it does",
		initializer.Name, initializer.TimeoutSeconds)
	if initializer.FailurePolicy == v1alpha1.FailureIgnore {
		note = fmt.Sprintf("initializer %s did not finish within %d s; failurePolicy Ignore: the namespace no longer waits for it",
			initializer.Name, initializer.TimeoutSeconds)
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(note)) // it never fails
	_, err := r.Events.Events(ns.Name).Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", ns.Name, sum.Sum64())},
		EventTime:  metav1.NowMicro(), ReportingController: reporting.Controller,
		ReportingInstance: reporting.Controller,
		Type:              corev1.EventTypeWarning, Reason: "InitializerTimedOut", Action: "Wait", Note: note,
		Regarding: *reporting.InNamespace(ns),
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		ctrl.LoggerFrom(ctx).Error(err, "can't record an event", "note", note)
	}
}
