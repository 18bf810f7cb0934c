// Package controller holds the reconcilers: thin ways from an event to the engine and on to a report.
package population

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/constraint"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/policyspace"
	"nstpl.dev/nstpl/operator/internal/population/queue"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// Namespaces brings each namespace to what templates declare for it.
type Namespaces struct {
	// Client reads from the cache, Live from the API server.
	Client    client.Client
	Live      client.Reader
	Templates *Templates
	Spaces    *policyspace.Spaces
	Quotas    *policyspace.UsageQuotas
	Objects   *objects.Store
	// Urgent writes to new namespaces, Bulk to all others; Yield lets the former pass.
	Urgent, Bulk *populate.Applier
	Yield        *populate.Yield
	Ledger       *Ledger
	Queue        *queue.Queue
	Recorder     events.EventRecorder
	Events       eventsclient.EventsV1Interface
	Metrics      *Metrics
	// Caches are as new as the leadership before anything is done.
	Caches *leadership.Caches
	// Exclude names namespaces that are never populated, besides those that match.Unpopulated names.
	Exclude []string
}

// workers is how many namespaces are worked on at once. Each has its objects written in parallel.
const workers = 16

// SetupWithManager has the namespaces looked at that the queue names, and fills the queue from the watch of namespaces.
func (r *Namespaces) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("namespace").
		Watches(&corev1.Namespace{}, r.handler()).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			NewQueue:                func(string, backoff.Limiter) backoff.Queue { return r.Queue },
		}).
		Complete(r.Caches.Before(r, r.Templates.Load))
}

// start queues the namespaces that are there at the start, before any is worked on: first those that wait to be opened,
// or of which nothing was ever reported, in the order in which they were created.
func (r *Namespaces) start(ctx context.Context, _ backoff.Queue) error {
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var waiting []*corev1.Namespace
	var others []string
	for i := range list.Items {
		ns := &list.Items[i]
		if reported, _ := found(ns); reported.Initializing || reported.Status == "" {
			waiting = append(waiting, ns)
		} else {
			others = append(others, ns.Name)
		}
	}
	slices.SortFunc(waiting, inOrderOfCreation)
	for _, ns := range waiting {
		r.Queue.AddNew(ns.Name)
	}
	r.Queue.AddBulk(others...)
	return nil
}

// inOrderOfCreation compares namespaces. Times of creation are in seconds; within one, the resource version tells, as
// long as nobody changed the namespace since.
func inOrderOfCreation(a, b *corev1.Namespace) int {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return strings.Compare(a.Name, b.Name)
	}
	return order
}

func (r *Namespaces) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ backoff.Queue) {
			if !e.IsInInitialList {
				r.born(e.Object)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ backoff.Queue) {
			switch {
			case e.ObjectOld.GetUID() != e.ObjectNew.GetUID():
				r.born(e.ObjectNew)
			case !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()),
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()),
				!e.ObjectOld.GetDeletionTimestamp().Equal(e.ObjectNew.GetDeletionTimestamp()):
				r.Queue.AddChanged(e.ObjectNew.GetName())
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ backoff.Queue) {
			r.Ledger.Forget(e.Object.GetName())
		},
	}
}

func (r *Namespaces) born(ns client.Object) {
	r.Ledger.Born(ns.GetName(), ns.GetUID(), time.Now())
	r.Queue.AddNew(ns.GetName())
}

// Reconcile is match, render, plan, apply and report.
func (r *Namespaces) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, req.NamespacedName, ns); err != nil {
		if apierrors.IsNotFound(err) {
			r.Ledger.Forget(req.Name)
			r.Objects.Forget(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	ns = r.Ledger.Latest(ns)
	placed, misplaced, err := r.place(ctx, ns)
	if err != nil || placed == nil {
		return reconcile.Result{}, err
	}
	templates, unpopulated := populate.Matching(r.Templates.Index, placed, r.Exclude...)
	if unpopulated != "" {
		return reconcile.Result{}, r.leave(ctx, ns, placed)
	}
	declared := populate.Declare(r.Templates.Cache, placed, templates)
	plan := populate.NewPlan(declared, r.Templates.Index, r.observe(declared))
	if plan, err = r.sure(ctx, plan); err != nil {
		return reconcile.Result{}, err
	}
	if misplaced != nil {
		plan = plan.WithoutDeletions() // what replaces them may be where the namespace belongs
	}
	applier := r.Bulk
	if initialize.Initializing(ns) || r.Ledger.Fresh(ns.Name, ns.UID) {
		applier = r.Urgent
		defer r.Yield.Urgent()()
	}
	r.Objects.Expect(plan)
	latest := ns
	result := applier.Apply(ctx, plan, func(ctx context.Context, seals string) (err error) {
		latest, err = r.writeSeals(ctx, latest, seals)
		return err
	})
	r.Objects.Record(plan, result)
	r.Metrics.count(result)
	if result.NamespaceGone() {
		return reconcile.Result{}, nil
	}
	return r.conclude(ctx, latest, plan, result, misplaced)
}

// writeSeals stores which objects existed in a namespace, and returns it as it is then.
func (r *Namespaces) writeSeals(ctx context.Context, ns *corev1.Namespace, seals string) (*corev1.Namespace, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": ns.UID, "resourceVersion": ns.ResourceVersion,
		"annotations": map[string]any{v1alpha1.SealAnnotation: orNull(seals)},
	}})
	if err != nil {
		return ns, err
	}
	written := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
	if err := r.Client.Status().Patch(ctx, written, client.RawPatch(types.MergePatchType, body)); err != nil {
		return ns, err
	}
	written.ManagedFields = nil
	return written, nil
}

// place returns a namespace with the labels that say where it is, or why it keeps those that it has: misplaced is a
// hierarchy.BrokenError, a hierarchy.NotAdoptedError or nil. The namespace is nil if it must wait: one that moves must
// find all templates that it is to inherit.
func (r *Namespaces) place(ctx context.Context, ns *corev1.Namespace) (placed *corev1.Namespace, misplaced, err error) {
	placed, misplaced = r.Spaces.Place(ctx, ns)
	_, isBroken := errors.AsType[*hierarchy.BrokenError](misplaced)
	if misplaced != nil && !isBroken && !isNotAdopted(misplaced) {
		return nil, nil, misplaced
	}
	// It gets the objects of templates that are new to it together with losing those of others, so all templates that
	// were written before the move must be known.
	if placed != ns && len(hierarchy.OwnDepthLabels(ns)) > 0 {
		current, err := r.Templates.Current(ctx, r.Spaces.AsOf(ns))
		if err != nil {
			return nil, nil, err
		}
		if !current {
			r.Queue.AddWaiting(ns.Name, requeueSoon)
			return nil, nil, nil
		}
		if shared, err := r.Spaces.Share(ctx, ns, placed); err != nil {
			return nil, nil, err
		} else if !shared {
			r.Queue.AddWaiting(ns.Name, requeueSoon)
			return nil, nil, nil
		}
	}
	return placed, misplaced, nil
}

// sure leaves out, for now, what would be deleted because no template declares it, if there are templates that are not
// taken in yet.
func (r *Namespaces) sure(ctx context.Context, plan populate.Plan) (populate.Plan, error) {
	doomed := func(c populate.Change) bool { return c.Undeclared && c.Deletes() }
	if !slices.ContainsFunc(plan.Changes, doomed) {
		return plan, nil
	}
	current, err := r.Templates.Current(ctx, "")
	if err != nil || current {
		return plan, err
	}
	r.Queue.AddWaiting(plan.Namespace.Name, requeueSoon)
	plan.Changes = slices.DeleteFunc(plan.Changes, doomed)
	return plan, nil
}

// observe returns what is in the namespace: nothing yet, if it was created just now.
func (r *Namespaces) observe(declared populate.Declared) populate.Observed {
	kinds := map[schema.GroupKind]bool{}
	var all []schema.GroupKind
	for _, object := range declared.Objects {
		if kind := object.ID().GroupKind; !kinds[kind] {
			kinds[kind] = true
			all = append(all, kind)
		}
	}
	observed := r.Objects.Observe(declared.Namespace.Name, all)
	if r.Ledger.Fresh(declared.Namespace.Name, declared.Namespace.UID) {
		observed.Objects, observed.Others, observed.Lost = nil, nil, nil
	}
	return observed
}

// conclude reports, and asks for another try if something failed.
func (r *Namespaces) conclude(
	ctx context.Context, ns *corev1.Namespace, plan populate.Plan, result populate.Result, misplaced error,
) (reconcile.Result, error) {
	report := reportOf(plan, result)
	if misplaced != nil {
		report = report.withMisplaced(misplaced)
	}
	born := r.Ledger.Record(ns.Name, ns.UID, standings(plan, result), report.Status == corev1.ConditionTrue)
	r.Ledger.Written(ns)
	done, err := r.done(ctx, plan, report)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !done && initialize.Initializing(ns) {
		report = report.notYet(ns)
	}
	if err := r.report(ctx, ns, report, done, func() { r.announce(plan, result, misplaced) }); err != nil {
		return reconcile.Result{}, err
	}
	r.announceCorrections(ctx, ns, result)
	if !born.IsZero() {
		r.Metrics.population.Observe(time.Since(born).Seconds())
	}
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

// leave reports a namespace that is not populated. An opted-out one is counted with the templates that would match it.
func (r *Namespaces) leave(ctx context.Context, ns, placed *corev1.Namespace) error {
	out := map[string]Standing{}
	if match.OptedOut(ns) {
		for _, template := range r.Templates.Index.Match(placed) {
			out[template.Name] = Standing{Generation: template.Generation, State: OptedOut}
		}
	}
	r.Ledger.Record(ns.Name, ns.UID, out, false)
	r.Objects.Forget(ns.Name)
	if ns.DeletionTimestamp != nil {
		return nil
	}
	done, err := r.Quotas.Counted(ctx, placed)
	if err != nil {
		return err
	}
	return r.report(ctx, ns, Report{Depths: hierarchy.OwnDepthLabels(placed), InTree: hierarchy.InTree(placed)}, done,
		func() {})
}

// report makes the namespace say what is new, and opens it if it is done and nobody else is waited for. The condition
// is also the memory of what was announced: a restart, or a failure that stays the same, announces nothing twice.
func (r *Namespaces) report(
	ctx context.Context, ns *corev1.Namespace, report Report, done bool, announce func(),
) error {
	ns = r.current(ctx, ns)
	before, since := found(ns)
	if before.Initializing {
		pending, err := r.pending(ctx, ns, done)
		if err != nil {
			return err
		}
		report.Initializing, report.Pending = len(pending) > 0, strings.Join(pending, ",")
	}
	if report.equal(before) {
		return nil
	}
	if report.Status != before.Status || since.IsZero() {
		since = metav1.Now()
	}
	body, err := report.patch(ns, since)
	if err != nil {
		return err
	}
	written := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
	err = r.Client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, body))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		// Somebody changed the namespace meanwhile, or another namespace has the name now.
		r.Queue.AddWaiting(ns.Name, requeueSoon)
		return nil
	case err != nil:
		return fmt.Errorf("report on namespace %s: %w", ns.Name, err)
	}
	written.ManagedFields = nil
	r.Ledger.Written(written)
	if !report.saysTheSame(before) {
		announce()
	}
	return nil
}

// current returns a namespace as the cache knows it by now, if it differs in nothing that a report is about: what it is
// given by Allocations comes while a new namespace is populated, and the report is refused if it is about the namespace
// as it was before.
func (r *Namespaces) current(ctx context.Context, ns *corev1.Namespace) *corev1.Namespace {
	now := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(ns), now, client.UnsafeDisableDeepCopy); err != nil {
		return ns // it is gone, which the report will find
	}
	now = r.Ledger.Latest(now)
	order, err := resourceversion.CompareResourceVersion(now.ResourceVersion, ns.ResourceVersion)
	if err != nil || order <= 0 || now.UID != ns.UID || !now.DeletionTimestamp.Equal(ns.DeletionTimestamp) ||
		!maps.Equal(now.Labels, ns.Labels) ||
		!maps.Equal(withoutAllocation(now.Annotations), withoutAllocation(ns.Annotations)) {
		return ns
	}
	return now
}

func withoutAllocation(annotations map[string]string) map[string]string {
	others := maps.Clone(annotations)
	maps.DeleteFunc(others, func(key, _ string) bool { return slices.Contains(constraint.AllocationKeys, key) })
	return others
}

// announce records an Event in the namespace for each thing that somebody should know.
func (r *Namespaces) announce(plan populate.Plan, result populate.Result, misplaced error) {
	ns := reporting.InNamespace(plan.Namespace)
	if isNotAdopted(misplaced) {
		r.Recorder.Eventf(ns, nil, corev1.EventTypeWarning, reasonNotAdopted, "Place", "%s",
			reporting.Shorten(misplaced.Error()))
	}
	// Events that differ in their note alone are counted as one, so each names the object that it is about.
	warn := func(object populate.ObjectID, reason, action, note string, arguments ...any) {
		r.Recorder.Eventf(ns, related(ns, object), corev1.EventTypeWarning, reason, action, note, arguments...)
	}
	for _, outcome := range result.Outcomes {
		if outcome.Failure != nil && outcome.Failure.Reason != populate.ReasonWaitsForRole {
			warn(outcome.ID(), "ObjectFailed", "Apply", "%s of template %s: %s", outcome.ID(), outcome.Template,
				reporting.Shorten(outcome.Failure.Error()))
		}
	}
	for _, broken := range plan.Broken {
		template := v1alpha1.GroupVersion.WithKind("NamespaceTemplate").GroupKind()
		warn(populate.ObjectID{GroupKind: template, Name: broken.Template.Name}, "TemplateNotAccepted", "Render", "%s",
			reporting.Shorten(broken.Err.Error()))
	}
	for _, omission := range plan.Omitted {
		id := populate.ObjectID{GroupKind: omission.Kind.GroupKind(), Name: omission.Name}
		warn(id, "CreatorUnknown", "Render", "%s of template %s is left out: %s", id, omission.Template,
			omission.Reason)
	}
	for _, withheld := range plan.Withheld {
		warn(withheld.Object.ID(), "RoleOverridden", "Render", "%s of template %s is left out: %s",
			withheld.Object.ID(), withheld.Object.Template.Name, withheld.Reason())
	}
	for _, overridden := range plan.Overridden {
		warn(overridden.Object, "DeclaredTwice", "Render",
			"%s is declared by templates %s and %s: the latter's is applied",
			overridden.Object, overridden.Template, overridden.By)
	}
	for _, change := range plan.Changes {
		if change.Undeclared && change.Action == populate.LeaveAlone {
			warn(change.ID(), "Undeclared", "Compare", "%s: %s", change.ID(), change.Reason)
		}
		if change.Drifted && change.Action == populate.LeaveAlone {
			r.Metrics.drift(change)
			warn(change.ID(), "Drifted", "Compare", "%s of template %s: %s", change.ID(), change.Template,
				change.Reason)
		}
	}
}

// announceCorrections tells those whose changes were undone.
func (r *Namespaces) announceCorrections(ctx context.Context, ns *corev1.Namespace, result populate.Result) {
	for _, outcome := range result.Outcomes {
		if outcome.Undeclared && outcome.Failure == nil {
			ctrl.LoggerFrom(ctx).Info("deleted what no template declares", "object", outcome.ID().String(), "template",
				outcome.Template)
			r.Recorder.Eventf(reporting.InNamespace(ns), related(reporting.InNamespace(ns), outcome.ID()),
				corev1.EventTypeWarning,
				"UndeclaredDeleted", "Prune",
				"%s was deleted: %s", outcome.ID(), outcome.Reason)
		}
		if outcome.Drifted && outcome.Failure == nil {
			r.Queue.Corrected(ns.Name)
			r.Metrics.drift(outcome.Change)
			ctrl.LoggerFrom(ctx).Info("corrected drift", "object", outcome.ID().String(), "template", outcome.Template,
				"reason", outcome.Reason)
			r.Recorder.Eventf(reporting.InNamespace(ns), related(reporting.InNamespace(ns), outcome.ID()),
				corev1.EventTypeNormal, "DriftCorrected",
				"Apply",
				"%s of template %s was applied again: %s", outcome.ID(), outcome.Template, outcome.Reason)
		}
	}
}

func related(ns *corev1.ObjectReference, object populate.ObjectID) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: schema.GroupVersion{Group: object.Group}.String(), Kind: object.Kind, Name: object.Name,
		Namespace: ns.Name,
	}
}
