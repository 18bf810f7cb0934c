package population

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// selectsRetry is how soon a namespace is populated again that lacks a label because a template selects by it. That
// template need not select the namespace, so its next selector does not queue the namespace.
const selectsRetry = 30 * time.Second

// report writes the result of a plan to the namespace, records Events, and returns when to try again.
func (r *Namespaces) report(
	ctx context.Context, ns *corev1.Namespace, pass pass,
) (reconcile.Result, error) {
	before := stored(ns)
	report := r.confirmed(ctx, before, reportOf(pass.plan, pass.result, pass.findings), pass)
	created := r.Results.Record(ns.Name, ns.UID,
		templateResults(pass.plan, pass.findings, r.Templates.Index.Ahead(pass.plan.Namespace),
			r.Templates.Index.OptedOut(pass.plan.Namespace)),
		report.Status == corev1.ConditionTrue)
	r.Results.SetUnconfirmed(ns.Name, ns.UID, pass.result.Unconfirmed())
	done, err := r.done(ctx, pass.plan, report)
	if err != nil {
		return reconcile.Result{}, err
	}
	isWithheld := !done && before.Initializing && report.Status == corev1.ConditionTrue
	if isWithheld {
		report = report.notYet(before)
	}
	r.recordDone(ctx, ns, pass.findings) // before the write, which may fail, since no later pass knows of it
	isStored, err := r.write(ctx, ns, pass.plan.Namespace, before, report, done)
	if err != nil {
		return reconcile.Result{}, err
	}
	r.Contributors.Findings.Report(ns.Name, pass.findings)
	if isStored && !isWithheld {
		r.recordDifferences(ns, before, report, pass.findings)
	}
	if !created.IsZero() {
		r.Metrics.population.Observe(time.Since(created).Seconds())
	}
	result, err := retry(ctx, pass.result)
	if result.RequeueAfter == 0 && pass.plan.LacksSelectedLabel() {
		result.RequeueAfter = selectsRetry
	}
	return result, err
}

// retry returns when a plan is tried again. A failure without a time of its own is returned as an error, so that the
// queue decides.
func retry(ctx context.Context, result populate.Result) (reconcile.Result, error) {
	var failures []error
	for _, outcome := range result.Outcomes {
		if outcome.Failure != nil {
			failures = append(failures, fmt.Errorf("%s: %w", outcome.ID(), outcome.Failure))
		}
	}
	if wait := result.RetryAfter(); wait > 0 {
		ctrl.LoggerFrom(ctx).Info("trying again later", "seconds", wait.Seconds(), "failures",
			errors.Join(failures...).Error())
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, errors.Join(failures...)
}

// reportUnpopulated writes that a namespace is not populated. One that is opted out is counted in the status of the
// templates that would select it.
func (r *Namespaces) reportUnpopulated(ctx context.Context, selected *selection) error {
	ns := selected.namespace
	out := map[string]TemplateResult{}
	if match.OptedOut(ns) {
		for _, template := range r.Templates.Index.Match(selected.placed) {
			out[template.Name] = TemplateResult{Generation: template.Generation, State: OptedOut}
		}
	}
	r.Results.Record(ns.Name, ns.UID, out, false)
	r.Results.NewFindings(ns.Name, ns.UID, nil, nil)
	r.Objects.Forget(ns.Name)
	if ns.DeletionTimestamp != nil {
		return nil
	}
	r.Contributors.Findings.Report(ns.Name, nil)
	done, err := r.Contributors.IsReady(ctx, selected.placed)
	if err != nil {
		return err
	}
	report := Report{
		Depths: hierarchy.OwnDepthLabels(selected.placed), InTree: hierarchy.InTree(selected.placed),
		Existing: populate.RecordedGrants(ns),
	}
	if match.UnpopulatedReason(ns) == "" { // a flag excludes it
		report.Status, report.Reason = corev1.ConditionFalse, populate.ConditionExcluded
		report.Message = selected.unpopulated
	}
	_, err = r.write(ctx, ns, selected.placed, stored(ns), report, done)
	return err
}

// write stores a report, and opens the namespace if it is done and no other initializer is pending. It reports whether
// the report is stored now: it is not if the namespace has changed, so that it is reconciled again. placed is the
// namespace as the pass read it, in its place.
func (r *Namespaces) write(
	ctx context.Context, ns, placed *corev1.Namespace, before storedReport, report Report, done bool,
) (isStored bool, err error) {
	if before.Initializing {
		ns = r.current(ctx, ns)
		pending, err := r.pending(ctx, ns, done)
		if err != nil {
			return false, err
		}
		report.Initializing, report.Pending = len(pending) > 0, strings.Join(pending, ",")
	}
	if report.equal(before.Report) {
		return true, nil
	}
	since := before.since
	if report.Status != before.Status || since.IsZero() {
		since = metav1.Now()
	}
	var block map[string]string
	if before.Initializing {
		block = r.contributed(ctx, ns)
	}
	if !before.Initializing {
		r.Yield.Wait(ctx) // like the writes of objects
	}
	written := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
	err = r.Client.Status().Patch(ctx, written, report.patch(ns, placed, before.Report, since, block))
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case patch.IsStale(err):
		// The namespace was changed meanwhile, or was deleted and created again.
		r.Queue.Enqueue(queue.Opening, requeueSoon, ns.Name)
		return false, nil
	case err != nil:
		return false, fmt.Errorf("report on namespace %s: %w", ns.Name, err)
	}
	written.ManagedFields = nil
	r.written.Written(written.Name, written)
	return true, nil
}

// contributed returns the annotations that another feature gives to an initializing namespace, so that it has them when
// it opens. If there are none to give at the moment, the feature gives them later.
func (r *Namespaces) contributed(ctx context.Context, ns *corev1.Namespace) map[string]string {
	annotations, err := r.Contributors.Annotations(ctx, ns)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("the namespace gets no user IDs yet", "problem", err.Error())
	}
	return annotations
}

// current returns an initializing namespace as the cache has it if the report about ns may be written to it, which
// would be refused with the older resourceVersion. It may differ only in the annotations that another feature writes at
// any time, and often while a new namespace is populated.
func (r *Namespaces) current(ctx context.Context, ns *corev1.Namespace) *corev1.Namespace {
	now, err := r.written.Read(ns.Name, func() (*corev1.Namespace, error) {
		cached := &corev1.Namespace{}
		return cached, r.Client.Get(ctx, client.ObjectKeyFromObject(ns), cached, client.UnsafeDisableDeepCopy)
	})
	if err != nil {
		return ns // it is gone, which the report will find
	}
	if !freshness.Newer(now.ResourceVersion, ns.ResourceVersion) || now.UID != ns.UID ||
		!now.DeletionTimestamp.Equal(ns.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(populate.PopulatedCondition(now), populate.PopulatedCondition(ns)) ||
		!maps.Equal(now.Labels, ns.Labels) ||
		!maps.Equal(r.independent(now.Annotations), r.independent(ns.Annotations)) {
		return ns
	}
	return now
}

// independent returns annotations without those that another feature writes at any time.
func (r *Namespaces) independent(annotations map[string]string) map[string]string {
	others := maps.Clone(annotations)
	maps.DeleteFunc(others, func(key, _ string) bool {
		return slices.Contains(r.Contributors.AnnotationKeys, key)
	})
	return others
}
