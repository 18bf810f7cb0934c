package population

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1listers "k8s.io/client-go/listers/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/sources"
	"nstpl.dev/nstpl/operator/internal/watch"
)

// templateWorkers is how many templates are accepted at once. Each takes three or four requests, one after the other.
const templateWorkers = 4

// statusDelay gathers the results in a template's namespaces into one write of its status.
const statusDelay = time.Second

// kindsRetry is how often the operator tries again to list kinds that it may not list or that could not be listed. No
// event tells it of a new permission.
const kindsRetry = objects.AskAgain

// A template is reconciled this often while its kinds are being listed: a new one, or one of the start, of which there
// may be many.
const (
	newPendingRetry = 20 * time.Millisecond
	oldPendingRetry = time.Second
)

// Reasons of the Accepted condition.
const (
	reasonAccepted         = "Accepted"
	reasonInvalid          = "Invalid"
	reasonKindsUnavailable = "KindsUnavailable"
)

// Templates is the controller that accepts templates: it compiles them, records their kinds, and only then adds them to
// the index by which namespaces are populated. Afterwards it writes their status.
type Templates struct {
	*Acceptance
	History  *History
	Rollouts *Rollouts
	Statuses *Statuses
	Remains  *Remains

	// Client reads from the cache.
	Client client.Client
	// Namespaces are the cached ones.
	Namespaces corev1listers.NamespaceLister
	Cache      *render.Cache
	Values     *Values
	Objects    *objects.Store
	Sources    *sources.Store
	Results    *Results
	// Requests is the queue of templates, Queue that of namespaces.
	Requests backoff.PriorityQueue
	Queue    *queue.Queue
	Metrics  *Metrics
	// Caches delay the first reconciliation until the caches are as new as the leadership.
	Caches *leadership.Caches

	// loading is held while the templates of the start are accepted.
	loading sync.Mutex
	loaded  bool
}

// SetupWithManager adds the controller to a manager. Templates are reconciled when they change, and when a
// CustomResourceDefinition of their kinds does.
func (r *Templates) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("namespacetemplate").
		For(&v1alpha1.NamespaceTemplate{},
			builder.WithPredicates(watch.MoreThanOwnStatus(&r.Statuses.written))).
		WatchesMetadata(definitionOf(""), handler.EnqueueRequestsFromMapFunc(r.withKindsOf), builder.OnlyMetadata).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: templateWorkers,
			NewQueue:                func(string, backoff.Limiter) backoff.Queue { return r.Requests },
		}).
		Complete(r.Caches.Before(r, r.Load))
}

// withKindsOf returns the templates that have objects of a CustomResourceDefinition's group, whose kinds may have
// changed.
func (r *Templates) withKindsOf(_ context.Context, definition client.Object) []reconcile.Request {
	_, group, _ := strings.Cut(definition.GetName(), ".")
	r.Objects.KindsChanged(group)
	var found []reconcile.Request
	for _, template := range r.Index.All() {
		for _, kind := range template.Status.Kinds {
			if kind.Group == group {
				found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(template)})
				break
			}
		}
	}
	return found
}

// queueDeclaring queues the templates that declare objects of a kind, or that are authoritative for it, since its
// objects became unknown, or known again.
func (r *Templates) queueDeclaring(kind schema.GroupKind) {
	for _, template := range r.Index.All() {
		isAuthoritative := func(layer rollout.Layer) bool {
			return slices.Contains(layer.Template.Spec.Authoritative, v1alpha1.GroupKind(kind))
		}
		if slices.Contains(template.Status.Kinds, v1alpha1.GroupKind(kind)) ||
			slices.Contains(template.Spec.Authoritative, v1alpha1.GroupKind(kind)) ||
			slices.ContainsFunc(r.Index.Layers(template.Name), isAuthoritative) {
			r.Requests.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(template)})
		}
	}
}

// Reconcile accepts a template, rolls it out, and writes its status.
func (r *Templates) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	template, err := r.Statuses.read(ctx, req.Name)
	gone := apierrors.IsNotFound(err)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if gone || template.DeletionTimestamp != nil {
		uninstalling, err := r.uninstalling(ctx)
		if err != nil {
			return reconcile.Result{}, err
		}
		if uninstalling {
			return r.keepObjects(ctx, template)
		}
	}
	if gone {
		r.drop(req.Name)
		return reconcile.Result{}, nil
	}
	before, known := r.Index.Layers(template.Name), template.Status.Revisions
	template, wait, err := r.acceptTemplate(ctx, template)
	if errors.Is(err, objects.ErrPending) {
		return reconcile.Result{RequeueAfter: r.pendingRetry(req.Name)}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	r.setListed(template.Name)
	r.Rollouts.recordRollout(template, known) // before what may fail, since the next pass knows the new state
	if err := r.Rollouts.queueChanged(ctx, template, before, r.Index.Layers(template.Name)); err != nil {
		return reconcile.Result{}, err
	}
	if template.DeletionTimestamp != nil {
		return r.Remains.release(ctx, template, false)
	}
	if err := r.Statuses.keepStatus(ctx, template); err != nil {
		return reconcile.Result{}, err
	}
	if accepted := acceptedOf(template); accepted != nil && accepted.Reason == reasonKindsUnavailable {
		wait = kindsRetry
	}
	if !sameNewest(known, template.Status.Revisions) {
		return reconcile.Result{RequeueAfter: min(wait, backoff.LongestWait)}, r.History.pruneRevisions(ctx, template)
	}
	return reconcile.Result{RequeueAfter: min(wait, backoff.LongestWait)}, nil
}

// Load accepts all templates that exist at the start, so that no namespace is planned without them. They need no
// rollout, because every namespace is reconciled after a start.
func (r *Templates) Load(ctx context.Context) error {
	r.loading.Lock()
	defer r.loading.Unlock()
	if r.loaded {
		return nil
	}
	if err := r.loadExemptions(ctx); err != nil {
		return err
	}
	namespaces, err := r.Namespaces.List(labels.Everything())
	if err != nil {
		return err
	}
	names := make([]string, 0, len(namespaces))
	for _, ns := range namespaces {
		names = append(names, ns.Name)
	}
	r.Results.Start(names)
	templates := &v1alpha1.NamespaceTemplateList{}
	if err := r.Client.List(ctx, templates, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	if slices.ContainsFunc(templates.Items, func(t v1alpha1.NamespaceTemplate) bool {
		return t.DeletionTimestamp != nil
	}) {
		uninstalling, err := r.uninstalling(ctx)
		if err != nil {
			return err
		}
		if uninstalling {
			return errUninstalling
		}
	}
	if err := r.watchAll(ctx, templates.Items); err != nil {
		return err
	}
	for i := range templates.Items {
		r.setListed(templates.Items[i].Name) // a load that failed may have recorded the opposite
		template, err := r.load(ctx, r.Statuses.shared(&templates.Items[i]))
		if err != nil {
			return fmt.Errorf("accept template %s: %w", templates.Items[i].Name, err)
		}
		if !r.isUnlisted(template.Name) {
			r.Rollouts.of(template.Name).rolledOut = stateOf(template)
		}
	}
	queueLacking(r.Queue, namespaces, r.Objects.Names)
	r.loaded = true
	return nil
}

// watchAll starts the watches of all kinds of the templates, and returns when each kind is listed or unavailable, or
// when nothing arrives of the others. They all begin together, so that a kind that cannot be listed delays only its own
// templates.
func (r *Templates) watchAll(ctx context.Context, templates []v1alpha1.NamespaceTemplate) error {
	labelled, unlabelled := map[schema.GroupKind]bool{}, map[schema.GroupKind]bool{}
	for i := range templates {
		for _, kind := range templates[i].Status.Kinds {
			labelled[schema.GroupKind(kind)] = true
		}
		for _, kind := range templates[i].Spec.Authoritative {
			unlabelled[schema.GroupKind(kind)] = true
		}
		r.Sources.Add(templates[i].Name, render.SourceRefs(&templates[i].Spec))
	}
	var starting sync.WaitGroup
	for kind := range labelled {
		starting.Go(func() { _ = r.Objects.Watch(ctx, kind) }) // again as each template is accepted
	}
	for kind := range unlabelled {
		starting.Go(func() { _ = r.Objects.WatchOthers(ctx, kind) })
	}
	starting.Wait()
	r.Sources.Wait(ctx, sourcesPatience)
	return r.Objects.Wait(ctx)
}

// load accepts a template at the start, and returns it as it is in force. If its kinds are still pending after
// watchAll, it was changed while no operator was running, or the API server does not answer to a list. A template that
// cannot be accepted delays no other.
func (r *Templates) load(
	ctx context.Context, template *v1alpha1.NamespaceTemplate,
) (*v1alpha1.NamespaceTemplate, error) {
	accepted, _, err := r.acceptTemplate(ctx, template)
	if errors.Is(err, objects.ErrPending) {
		if err := r.Objects.Wait(ctx); err != nil {
			return nil, err
		}
		accepted, _, err = r.acceptTemplate(ctx, template)
	}
	if err == nil {
		return accepted, nil
	}
	log := ctrl.LoggerFrom(ctx).WithValues("template", template.Name)
	if errors.Is(err, objects.ErrPending) {
		log.Info("the template's namespaces wait until its objects are known", "problem", err.Error())
		r.setUnlisted(template.Name)
	} else {
		log.Error(err, "the template could not be accepted: what an earlier process accepted stays in force")
	}
	return r.setStored(ctx, template)
}

// setStored adds a template to the index as an earlier process has accepted it, and returns it so. One whose spec
// has changed since has the newest of its revisions, and one that was never accepted is not added.
func (r *Templates) setStored(
	ctx context.Context, template *v1alpha1.NamespaceTemplate,
) (*v1alpha1.NamespaceTemplate, error) {
	specs, err := r.History.specs(ctx, template, template.Status.Revisions)
	if err != nil {
		return nil, err
	}
	if template.Status.ObservedGeneration != template.Generation {
		accepted := acceptedBefore(template, specs)
		if accepted == nil {
			if len(template.Status.Revisions) > 0 {
				r.setUnlisted(template.Name) // it is not known what its namespaces have
			}
			return template, nil
		}
		template = accepted
	}
	r.setIndex(ctx, template, specs)
	return template, nil
}

// acceptedBefore returns a template whose spec is not accepted with the newest of its revisions that exists, or nil if
// none does.
func acceptedBefore(
	template *v1alpha1.NamespaceTemplate, specs map[string]*v1alpha1.NamespaceTemplateSpec,
) *v1alpha1.NamespaceTemplate {
	for _, revision := range template.Status.Revisions {
		if spec := specs[revision.Name]; spec != nil {
			accepted := *template
			accepted.Spec, accepted.Generation, accepted.DeletionTimestamp = *spec, revision.Generation, nil
			accepted.Spec.Rollout = template.Spec.Rollout // revisions do not contain it
			return &accepted
		}
	}
	return nil
}

// acceptTemplate compiles a template, records and watches its kinds, takes the next step of its rollout, and adds it to
// the index. The status is stored first, so that an operator that ends after an apply finds the object again, and so
// that its successor knows which revision each namespace has. It returns after which time the next step may be due.
func (r *Templates) acceptTemplate(
	ctx context.Context, template *v1alpha1.NamespaceTemplate,
) (*v1alpha1.NamespaceTemplate, time.Duration, error) {
	template, err := r.Remains.finalize(ctx, template)
	if err != nil {
		return nil, 0, err
	}
	status := template.Status.DeepCopy()
	if known := r.Index.Get(template.Name); known != nil && known.UID == template.UID {
		addKinds(status, known.Status.Kinds)
	}
	accepted := r.accept(ctx, template, status)
	inForce, err := r.History.specs(ctx, template, status.Revisions)
	if err != nil {
		return nil, 0, err
	}
	problems, err := r.watch(ctx, template, status.Kinds, inForce)
	if err != nil {
		return nil, 0, err
	}
	if err := r.follow(template.Name, &template.Spec); err != nil {
		return nil, 0, err
	}
	if problems != "" && accepted.Status == metav1.ConditionTrue {
		accepted.Reason, accepted.Message = reasonKindsUnavailable, problems
	}
	r.logProblem(ctx, template.Name, accepted)
	r.Metrics.kindsUnavailable(template.Name, accepted.Reason == reasonKindsUnavailable)
	apimeta.SetStatusCondition(&status.Conditions, accepted)
	if status.ObservedGeneration != template.Generation {
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: v1alpha1.TemplatePopulated, ObservedGeneration: template.Generation,
			Status: metav1.ConditionFalse, Reason: "Populating", Message: "the namespaces are being populated",
		})
	}
	specs, err := r.History.revise(ctx, template, status, inForce)
	if err != nil {
		return nil, 0, errors.Join(err, r.reportUnrevised(ctx, template, err))
	}
	for _, spec := range specs {
		if err := r.follow(template.Name, spec); err != nil {
			return nil, 0, err
		}
	}
	wait, err := r.Rollouts.advance(template, rollout.New(template, status.Revisions, specs), status)
	if err != nil {
		return nil, 0, err
	}
	if err := r.Statuses.completeStatus(ctx, template, specs, status); err != nil {
		return nil, 0, err
	}
	if template, err = r.Statuses.writeStatus(ctx, template, status); err != nil {
		return nil, 0, err
	}
	r.setIndex(ctx, template, specs)
	return template, wait, nil
}

// reportUnrevised reports in the stored status of a template that the revision of its spec cannot be stored, so that
// the spec is not rolled out.
func (r *Templates) reportUnrevised(ctx context.Context, template *v1alpha1.NamespaceTemplate, problem error) error {
	status := template.Status.DeepCopy()
	reporting.SetKstatus(&status.Conditions, template.Generation, reporting.InProgress, rollout.ReasonNotStored,
		reporting.Shorten(fmt.Sprintf("the last change is not rolled out, because its revision cannot be stored: %v",
			problem)))
	_, err := r.Statuses.writeStatus(ctx, template, status)
	return err
}

// setIndex adds a template to the index, with the revisions in its status.
func (r *Templates) setIndex(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, specs map[string]*v1alpha1.NamespaceTemplateSpec,
) {
	layers := rollout.New(template, template.Status.Revisions, specs)
	r.Values.set(ctx, template, layers)
	r.Index.SetLayers(template, layers)
	generations := make([]int64, 0, len(layers))
	var refs []render.SourceRef
	for i := range layers {
		generations = append(generations, layers[i].Template.Generation)
		refs = append(refs, render.SourceRefs(&layers[i].Template.Spec)...)
	}
	r.Cache.Keep(template.Name, generations...)
	r.Sources.Set(template.Name, refs)
}

// logProblem logs why a template is not populated: once for each process, and whenever the reason changes.
func (r *Templates) logProblem(ctx context.Context, template string, accepted metav1.Condition) {
	if known := r.Index.Get(template); known != nil {
		if before := acceptedOf(known); before != nil && before.Message == accepted.Message {
			return
		}
	}
	if accepted.Reason != reasonAccepted {
		ctrl.LoggerFrom(ctx).Error(errors.New(accepted.Message), "the template can't be populated as it is",
			"template", template, "reason", accepted.Reason)
	}
}

// accept returns whether the operator can use a template: it compiles, and rules protect the labels and annotations of
// namespaces from which it renders.
func (r *Templates) accept(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus,
) metav1.Condition {
	accepted := r.compile(template, status)
	if accepted.Status != metav1.ConditionTrue {
		return accepted
	}
	// Before the check, so that a rule that arrives after it queues the template again.
	r.Values.set(ctx, template, r.Index.Layers(template.Name))
	if err := r.Values.check(ctx, template.Name, render.UsedKeys(&template.Spec)); err != nil {
		accepted.Status, accepted.Reason = metav1.ConditionFalse, v1alpha1.TemplateValueNotProtected
		accepted.Message = reporting.Shorten(err.Error())
		return accepted
	}
	for _, invalid := range match.InvalidAnnotations(template) {
		accepted.Message = reporting.Shorten(fmt.Sprintf("%s; %s", accepted.Message, invalid))
	}
	return accepted
}

// compile compiles a template, unless its status says that this was done, and adds its kinds to the status.
func (r *Templates) compile(
	template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus,
) metav1.Condition {
	accepted := metav1.Condition{
		Type: v1alpha1.TemplateAccepted, ObservedGeneration: template.Generation,
		Status: metav1.ConditionTrue, Reason: reasonAccepted, Message: "the template compiles",
	}
	before := acceptedOf(template)
	if before != nil && before.Status == metav1.ConditionTrue && before.ObservedGeneration == template.Generation {
		return accepted
	}
	compiled, err := r.Cache.Compile(template, nil)
	if err != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, reasonInvalid,
			reporting.Shorten(err.Error())
		return accepted
	}
	status.NamespaceMetadata = status.NamespaceMetadata || len(render.DeclaredMetadata(&template.Spec)) > 0
	for _, kind := range compiled.Kinds() {
		addKinds(status, []v1alpha1.GroupKind{{Group: kind.Group, Kind: kind.Kind}})
	}
	return accepted
}

// watch starts the watches of the kinds that a template declares or declared earlier, and of those for which it or one
// of its revisions in force is authoritative. It returns why some cannot be listed: the cluster does not have the kind,
// or the operator lacks a permission. Of a kind that the cluster does not have and that the template does not declare
// any more, there is nothing to know. The error is objects.ErrPending if that is not known yet.
func (r *Templates) watch(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, kinds []v1alpha1.GroupKind,
	inForce map[string]*v1alpha1.NamespaceTemplateSpec,
) (string, error) {
	declared := map[schema.GroupKind]bool{}
	for _, declaration := range render.AllDeclarations(template) {
		declared[declaration.GroupKind()] = true
	}
	var problems []string
	var pending error
	note := func(kind v1alpha1.GroupKind, err error) {
		if errors.Is(err, objects.ErrPending) {
			pending = err
		} else if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s", schema.GroupKind(kind), err))
		}
	}
	for _, kind := range kinds {
		err := r.Objects.Watch(ctx, schema.GroupKind(kind))
		if !apimeta.IsNoMatchError(err) || declared[schema.GroupKind(kind)] {
			note(kind, err)
		}
	}
	for _, kind := range template.Spec.Authoritative {
		note(kind, r.Objects.WatchOthers(ctx, schema.GroupKind(kind)))
	}
	for _, kind := range earlierAuthority(template, inForce) {
		if err := r.Objects.WatchOthers(ctx, schema.GroupKind(kind)); !apimeta.IsNoMatchError(err) {
			note(kind, err)
		}
	}
	return reporting.Shorten(strings.Join(problems, "; ")), pending
}

// earlierAuthority returns the kinds, in a fixed order, for which only earlier revisions of a template are
// authoritative.
func earlierAuthority(
	template *v1alpha1.NamespaceTemplate, inForce map[string]*v1alpha1.NamespaceTemplateSpec,
) []v1alpha1.GroupKind {
	var earlier []v1alpha1.GroupKind
	for _, name := range slices.Sorted(maps.Keys(inForce)) {
		for _, kind := range inForce[name].Authoritative {
			if !slices.Contains(template.Spec.Authoritative, kind) && !slices.Contains(earlier, kind) {
				earlier = append(earlier, kind)
			}
		}
	}
	return earlier
}

// drop forgets a deleted template. Its objects remain; with deletionPolicy Delete, they were deleted before it.
func (r *Templates) drop(name string) {
	r.Index.Delete(name)
	r.Cache.Forget(name)
	r.Values.forget(name)
	r.Sources.Set(name, nil)
	r.Metrics.forget(name)
	r.Rollouts.forget(name)
	r.setListed(name)
	r.Queue.Enqueue(queue.Rollout, 0, r.Results.ForgetTemplate(name)...)
	// The statuses of the exemptions, and the conditions of namespaces in which objects stay, say that the template
	// does not exist.
	r.Queue.Enqueue(queue.Rollout, 0, r.Index.ExemptFrom(name)...)
	r.Queue.Enqueue(queue.Rollout, 0, slices.Collect(maps.Keys(r.Objects.Populated(name)))...)
}
