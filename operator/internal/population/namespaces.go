package population

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// Namespaces is the controller that populates namespaces.
type Namespaces struct {
	// Client reads from the cache, Live from the API server.
	Client    client.Client
	Live      client.Reader
	Templates *Templates
	Objects   *objects.Store
	// Urgent writes to new namespaces, Bulk to all others. Yield lets the writes of Urgent pass those of Bulk.
	Urgent, Bulk *populate.Applier
	Yield        *populate.Yield
	Results      *Results
	Queue        *queue.Queue
	Recorder     events.EventRecorder
	Events       eventsclient.EventsV1Interface
	Metrics      *Metrics
	// Contributors take part in the one write to a namespace.
	Contributors Contributors
	// Fights delay the corrections of objects that other clients change again and again.
	Fights *Fights
	// Caches delay the first reconciliation until the caches are as new as the leadership.
	Caches *leadership.Caches
	// Exclude names namespaces that are never populated, besides those that match.UnpopulatedReason names.
	Exclude []string

	// written has the namespaces that this process wrote, by name.
	written freshness.Store[string, *corev1.Namespace]
	// reported has the exemptions whose statuses this process wrote.
	reported freshness.Store[client.ObjectKey, *v1alpha1.TemplateExemption]
}

// workers is how many namespaces are reconciled at once. The objects of each are written in parallel.
const workers = 16

// SetupWithManager adds the controller to a manager.
func (r *Namespaces) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("namespace").
		Watches(&corev1.Namespace{}, r.handler()).
		Watches(&v1alpha1.TemplateExemption{}, r.exemptionHandler()).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			NewQueue:                func(string, backoff.Limiter) backoff.Queue { return r.Queue },
		}).
		Complete(r.Caches.Before(r, r.Templates.Load))
}

// start queues the namespaces that wait at the start before any is reconciled, in the order of their creation. The
// handler queues the others, and those that are created between this list and its registration.
func (r *Namespaces) start(ctx context.Context, _ backoff.Queue) error {
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	r.queueWaiting(list.Items)
	return nil
}

func (r *Namespaces) queueWaiting(namespaces []corev1.Namespace) {
	var waiting []*corev1.Namespace
	for i := range namespaces {
		if ns := &namespaces[i]; isWaiting(ns) {
			waiting = append(waiting, ns)
		}
	}
	slices.SortFunc(waiting, inOrderOfCreation)
	for _, ns := range waiting {
		r.Queue.Enqueue(queue.Opening, 0, ns.Name)
	}
}

// isWaiting reports whether a namespace is initializing or was never reported on.
func isWaiting(ns *corev1.Namespace) bool {
	reported := stored(ns)
	return reported.Initializing || reported.Status == ""
}

// inOrderOfCreation compares namespaces by their creation time, which has a resolution of one second, and then by
// resourceVersion, which tells the order unless one of them was changed since.
func inOrderOfCreation(a, b *corev1.Namespace) int {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order
	}
	switch {
	case freshness.Newer(a.ResourceVersion, b.ResourceVersion):
		return 1
	case freshness.Newer(b.ResourceVersion, a.ResourceVersion):
		return -1
	}
	return strings.Compare(a.Name, b.Name)
}

func (r *Namespaces) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ backoff.Queue) {
			r.written.Observed(e.Object.GetName(), e.Object.GetResourceVersion())
			if e.IsInInitialList {
				r.exists(e.Object)
			} else {
				r.created(e.Object)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ backoff.Queue) {
			r.written.Observed(e.ObjectNew.GetName(), e.ObjectNew.GetResourceVersion())
			switch {
			case e.ObjectOld.GetUID() != e.ObjectNew.GetUID():
				r.created(e.ObjectNew)
			case !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()),
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()),
				!e.ObjectOld.GetDeletionTimestamp().Equal(e.ObjectNew.GetDeletionTimestamp()):
				r.Queue.Enqueue(queue.Changed, 0, e.ObjectNew.GetName())
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ backoff.Queue) {
			r.written.Deleted(e.Object.GetName(), e.Object.GetUID())
			if r.Results.Deleted(e.Object.GetName(), e.Object.GetUID()) {
				r.Contributors.Findings.Forget(e.Object.GetName())
				r.Fights.Forget(e.Object.GetName())
				r.Objects.NamespaceEnded(e.Object.GetName())
			}
		},
	}
}

// exists queues a namespace of the first list. A lower priority than that of new namespaces keeps the order in which
// start queues them.
func (r *Namespaces) exists(object client.Object) {
	if ns, ok := object.(*corev1.Namespace); ok && isWaiting(ns) {
		r.Queue.Enqueue(queue.Changed, 0, ns.Name)
	} else {
		r.Queue.Enqueue(queue.Rollout, 0, object.GetName())
	}
}

// queueLacking queues the namespaces that lack objects before those that only have to be checked, which are many: no
// event tells of objects that were deleted while no replica led. names returns the objects in a namespace.
func queueLacking(q *queue.Queue, namespaces []*corev1.Namespace, names func(namespace string) []populate.ObjectID) {
	for _, ns := range namespaces {
		if populate.LacksObjects(ns, names(ns.Name)) {
			q.Enqueue(queue.Changed, 0, ns.Name)
		}
	}
}

func (r *Namespaces) created(ns client.Object) {
	if r.Results.Created(ns.GetName(), ns.GetUID(), time.Now()) {
		r.Objects.NamespaceEnded(ns.GetName()) // the objects of an earlier one may still be in the caches
	}
	r.Queue.Enqueue(queue.Opening, 0, ns.GetName())
}

// selection is the templates that select a namespace.
type selection struct {
	// namespace is the stored namespace, placed the same namespace with the depth labels that it should have.
	namespace, placed *corev1.Namespace
	// misplaced is why the depth labels cannot change: a hierarchy.BrokenError, a hierarchy.NotAdoptedError or nil.
	misplaced error
	templates []*v1alpha1.NamespaceTemplate
	// unpopulated is why the namespace is never populated, or empty.
	unpopulated string
}

// Reconcile selects the templates of a namespace, renders them, plans what to do about the objects that exist, applies
// the plan, and reports the result.
func (r *Namespaces) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	applies, end := r.Templates.Remains.Passes.begin()
	defer end()
	ns, err := r.read(ctx, req.Name)
	if err != nil || ns == nil {
		return reconcile.Result{}, err
	}
	defer r.Results.Waits(ns.Name, func() []string { return r.mayLack(ctx, ns) })
	exempt, err := r.readExemptions(ctx, ns)
	if err != nil {
		return reconcile.Result{}, err
	}
	selected, err := r.selectTemplates(ctx, ns)
	if err != nil || selected == nil {
		return reconcile.Result{}, err
	}
	applies(selected.templates)
	if selected.unpopulated != "" {
		if err := r.reportUnpopulated(ctx, selected); err != nil {
			return reconcile.Result{}, err
		}
		r.Objects.Consider(ns.Name, nil)
		none := populate.Plan{Declared: populate.Declared{Namespace: ns}}
		return reconcile.Result{}, r.reportExemptions(ctx, exempt, none, selected.unpopulated)
	}
	declared := r.render(ctx, selected)
	plan, err := r.plan(ctx, selected, declared)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan = r.postpone(plan)
	latest, result := r.apply(ctx, ns, plan)
	pass := pass{plan, result, populate.Findings(plan, result), selected.misplaced}
	pass.findings = slices.Concat(pass.findings, r.unknownUndeclared(plan), r.fought(ctx, plan, result))
	if selected.misplaced != nil {
		pass.findings = slices.Insert(pass.findings, 0, misplacement(selected.misplaced))
	}
	r.Metrics.countFailures(pass.findings)
	if result.NamespaceGone() {
		return reconcile.Result{}, nil
	}
	retry, err := r.report(ctx, latest, pass)
	if failed := r.reportExemptions(ctx, exempt, plan, ""); err == nil && failed != nil {
		return reconcile.Result{}, failed
	}
	return retry, err
}

// read returns the namespace as it was stored last, or nil if it does not exist.
func (r *Namespaces) read(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns, err := r.written.Read(name, func() (*corev1.Namespace, error) {
		cached := &corev1.Namespace{}
		return cached, r.Client.Get(ctx, client.ObjectKey{Name: name}, cached)
	})
	if apierrors.IsNotFound(err) {
		r.Results.Forget(name)
		r.Objects.Forget(name)
		r.Templates.setExemptions(name, nil)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// selectTemplates returns the templates that select a namespace, or nil if the namespace has to wait. Then it has been
// queued again.
func (r *Namespaces) selectTemplates(ctx context.Context, ns *corev1.Namespace) (*selection, error) {
	placed, misplaced, err := r.updatePlacement(ctx, ns)
	if err != nil || placed == nil {
		return nil, err
	}
	if r.Templates.WaitsForObjects(placed) {
		r.queueAgain(ns)
		return nil, nil
	}
	templates, unpopulated := populate.Matching(r.Templates.Index, placed, r.Exclude...)
	return &selection{ns, placed, misplaced, templates, unpopulated}, nil
}

// mayLack returns the templates that may select a namespace whose pass has ended without a result, or nil if they are
// not known.
func (r *Namespaces) mayLack(ctx context.Context, ns *corev1.Namespace) []string {
	placed, _ := r.Contributors.Placement.Placed(ctx, ns)
	if placed == nil {
		return nil
	}
	names := []string{}
	for _, state := range []*corev1.Namespace{ns, placed} {
		for _, template := range slices.Concat(r.Templates.Index.Match(state), r.Templates.Index.Ahead(state),
			r.Templates.Index.OptedOut(state), r.Templates.Stored.Match(state)) {
			names = append(names, template.Name)
		}
	}
	return names
}

// queueAgain queues a namespace whose templates wait for their objects. Acceptance queues it at once.
func (r *Namespaces) queueAgain(ns *corev1.Namespace) {
	if isWaiting(ns) {
		r.Queue.Enqueue(queue.Opening, requeueSoon, ns.Name)
	} else {
		r.Queue.Enqueue(queue.Rollout, oldPendingRetry, ns.Name)
	}
}

func (r *Namespaces) render(ctx context.Context, selected *selection) populate.Declared {
	return populate.Declare(r.Templates.Cache, selected.placed, selected.templates, populate.Inputs{
		Exemptions: r.Templates.Index.Exemptions(selected.placed.Name), Guard: r.Templates.Values.guard(ctx),
		Sources: r.Templates.Sources.Get, Newest: r.Templates.Index.Newest(selected.placed),
	})
}

// plan compares what is declared with what exists.
func (r *Namespaces) plan(
	ctx context.Context, selected *selection, declared populate.Declared,
) (populate.Plan, error) {
	observed := r.observe(declared)
	if populate.MissesGrants(declared, observed) {
		others, err := r.Bulk.Grants(ctx, declared.Namespace.Name)
		if err != nil {
			return populate.Plan{}, err
		}
		observed.Others = append(observed.Others, others...)
	}
	plan, err := r.withoutDoubtfulDeletions(ctx, populate.NewPlan(declared, r.Templates.Index, observed))
	if selected.misplaced != nil {
		plan = plan.WithoutDeletions(r.Templates.Index)
	}
	return plan, err
}

// observe returns the objects that exist in the namespace. In one that was created just now, they may be those of an
// earlier namespace of the same name, so it returns none. If there are some, it queues the namespace again: users may
// have created them before the watch reported the namespace.
func (r *Namespaces) observe(declared populate.Declared) populate.Observed {
	kinds := map[schema.GroupKind]bool{}
	var all []schema.GroupKind
	for _, object := range declared.Objects {
		if kind := object.ID().GroupKind; !kinds[kind] {
			kinds[kind] = true
			all = append(all, kind)
		}
	}
	name, uid := declared.Namespace.Name, declared.Namespace.UID
	isSuccessor := r.Results.IsSuccessor(name, uid)
	if isSuccessor {
		r.Objects.NamespaceEnded(name)
	}
	observed := r.Objects.Observe(name, all, declared.ConsideredKinds())
	if isSuccessor || r.Results.IsNew(name, uid) {
		if len(observed.Objects)+len(observed.Others) > 0 {
			r.Queue.Enqueue(queue.Changed, requeueSoon, name)
		}
		observed.Objects, observed.Others, observed.Lost = nil, nil, nil
	}
	observed.Unconfirmed = r.Results.Unconfirmed(name, uid)
	return observed
}

// withoutDoubtfulDeletions postpones the deletion of objects that another template may come to declare: of objects that
// no template declares while a template selects the namespace that this process does not know yet, and of objects that
// are declared by a revision whose rollout has not reached the namespace.
func (r *Namespaces) withoutDoubtfulDeletions(ctx context.Context, plan populate.Plan) (populate.Plan, error) {
	doubtful := func(c populate.Change) bool { return c.Undeclared && c.Deletes() }
	if slices.ContainsFunc(plan.Changes, doubtful) {
		wait, err := r.Templates.Current(ctx, "", plan.Namespace)
		if err != nil {
			return plan, err
		}
		if wait > 0 {
			r.Queue.Enqueue(queue.Opening, wait, plan.Namespace.Name)
			plan.Changes = slices.DeleteFunc(plan.Changes, doubtful)
		}
	}
	return plan.Keeping(r.Templates.Cache, r.Templates.Index.Ahead(plan.Namespace)), nil
}

// apply carries out a plan: first the labels and annotations of the namespace itself, then its objects. It returns the
// namespace as it is stored afterwards.
func (r *Namespaces) apply(
	ctx context.Context, ns *corev1.Namespace, plan populate.Plan,
) (*corev1.Namespace, populate.Result) {
	applier := r.Bulk
	if initialize.Initializing(ns) || r.Results.IsNew(ns.Name, ns.UID) {
		applier = r.Urgent
		defer r.Yield.Urgent()()
	}
	metadata := applier.ApplyMetadata(ctx, plan)
	if metadata != nil && metadata.Written != nil {
		ns = withMetadata(ns, metadata.Written)
		r.written.Written(ns.Name, ns)
	}
	r.Objects.Expect(plan)
	result := applier.Apply(ctx, plan, func(ctx context.Context, existing string) (err error) {
		ns, err = r.writeExisting(ctx, ns, existing)
		return err
	})
	r.Objects.Record(plan, result)
	if metadata != nil {
		result.Outcomes = slices.Insert(result.Outcomes, 0, *metadata)
	}
	r.Metrics.countWrites(result)
	return ns, result
}

// withMetadata returns a namespace with the metadata that the API server returned after a write of nothing else.
func withMetadata(ns *corev1.Namespace, written *metav1.PartialObjectMetadata) *corev1.Namespace {
	after := *ns
	after.ObjectMeta = written.ObjectMeta
	after.ManagedFields = nil
	return &after
}

// writeExisting records in the namespace which objects existed, and returns the namespace as it is stored afterwards.
// Users who change an open namespace all the time must not keep what is to be deleted. One that is initializing must be
// as it was read: its labels decide what it has when it opens.
func (r *Namespaces) writeExisting(
	ctx context.Context, ns *corev1.Namespace, existing string,
) (*corev1.Namespace, error) {
	tested := populate.UnlessRecorded(ns)
	if initialize.Initializing(ns) {
		tested = tested.Test("/metadata/resourceVersion", ns.ResourceVersion)
	}
	const key = v1alpha1.ExistingAnnotation
	before, after := map[string]string{key: ns.Annotations[key]}, map[string]string{key: existing}
	if existing == "" {
		clear(after)
	}
	tested = tested.Change("/metadata/annotations", before, after)
	written := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
	err := r.Client.Status().Patch(ctx, written, tested)
	if patch.IsStale(err) {
		return ns, apierrors.NewConflict(corev1.Resource("namespaces"), ns.Name, err)
	}
	if err != nil {
		return ns, err
	}
	written.ManagedFields = nil
	r.written.Written(written.Name, written)
	return written, nil
}
