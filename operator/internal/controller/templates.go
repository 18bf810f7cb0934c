package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/objects"
)

// statusDelay gathers what happens to a template's namespaces into one write of its status.
const statusDelay = time.Second

// kindsRetry is how often kinds are asked for again that the operator has no right to; nothing tells of a new right.
const kindsRetry = 15 * time.Second

const reasonKindsUnavailable = "KindsUnavailable"

// Templates takes templates in: it compiles them, records their kinds, and only then lets them match. Afterwards it keeps
// their status.
type Templates struct {
	Client  client.Client
	Index   *match.Index
	Cache   *render.Cache
	Objects *objects.Store
	Ledger  *Ledger
	Queue   *Queue
	Exclude []string

	mu     sync.Mutex
	loaded bool
	// taken are the states of templates that were rolled out.
	taken map[string]state
}

// state is what of a template decides on objects.
type state struct {
	uid        types.UID
	generation int64
	off        string
	// accepted is the message of the condition Accepted: what keeps kinds from being populated may change by itself.
	accepted string
}

// Reconcile takes a template in and keeps its status.
func (r *Templates) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Load(ctx); err != nil {
		return reconcile.Result{}, err
	}
	template := &v1alpha1.NamespaceTemplate{}
	if err := r.Client.Get(ctx, req.NamespacedName, template); err != nil {
		if apierrors.IsNotFound(err) {
			r.drop(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	old := r.Index.Get(template.Name)
	template, err := r.take(ctx, template)
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.advance(template) {
		if err := r.rollOut(ctx, old, template); err != nil {
			return reconcile.Result{}, err
		}
	}
	if template.DeletionTimestamp != nil {
		return r.release(ctx, template)
	}
	if err := r.keepStatus(ctx, template); err != nil {
		return reconcile.Result{}, err
	}
	if accepted := acceptedOf(template); accepted != nil && accepted.Reason == reasonKindsUnavailable {
		return reconcile.Result{RequeueAfter: kindsRetry}, nil
	}
	return reconcile.Result{}, nil
}

// Load takes in all templates that are there at the start, before anything is planned: a namespace must not be seen
// without them. What it finds needs no roll-out, because every namespace is looked at then.
func (r *Templates) Load(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded {
		return nil
	}
	namespaces := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	names := make([]string, 0, len(namespaces.Items))
	for i := range namespaces.Items {
		names = append(names, namespaces.Items[i].Name)
	}
	r.Ledger.Open(names)
	templates := &v1alpha1.NamespaceTemplateList{}
	if err := r.Client.List(ctx, templates); err != nil {
		return err
	}
	r.taken = map[string]state{}
	for i := range templates.Items {
		template, err := r.take(ctx, &templates.Items[i])
		if err != nil {
			return fmt.Errorf("take in template %s: %w", templates.Items[i].Name, err)
		}
		r.taken[template.Name] = stateOf(template)
	}
	r.loaded = true
	return nil
}

// take compiles a template, writes down what kinds it has, watches them, and lets it match. The kinds come first: an
// operator that dies after an apply must find the object again.
func (r *Templates) take(ctx context.Context, template *v1alpha1.NamespaceTemplate) (*v1alpha1.NamespaceTemplate, error) {
	template, err := r.finalize(ctx, template)
	if err != nil {
		return nil, err
	}
	status := template.Status.DeepCopy()
	if known := r.Index.Get(template.Name); known != nil && known.UID == template.UID {
		addKinds(status, known.Status.Kinds)
	}
	accepted := r.accept(template, status)
	if accepted.Status == metav1.ConditionTrue {
		if problems := r.watch(ctx, status.Kinds); problems != "" {
			accepted.Reason, accepted.Message = reasonKindsUnavailable, problems
		}
	}
	if before := acceptedOf(template); before == nil || before.Message != accepted.Message {
		ctrl.LoggerFrom(ctx).Info("took in a template", "template", template.Name, "accepted", accepted.Status, "reason", accepted.Reason,
			"message", accepted.Message)
	}
	apimeta.SetStatusCondition(&status.Conditions, accepted)
	if status.ObservedGeneration != template.Generation {
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: v1alpha1.TemplatePopulated, ObservedGeneration: template.Generation,
			Status: metav1.ConditionFalse, Reason: "Populating", Message: "the namespaces are being looked at",
		})
	}
	status.ObservedGeneration = template.Generation
	if template, err = r.writeStatus(ctx, template, status); err != nil {
		return nil, err
	}
	r.Index.Set(template)
	return template, nil
}

// accept compiles a template, unless its status says that this was done, and adds its kinds to status.
func (r *Templates) accept(template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus) metav1.Condition {
	accepted := metav1.Condition{
		Type: v1alpha1.TemplateAccepted, ObservedGeneration: template.Generation,
		Status: metav1.ConditionTrue, Reason: "Accepted", Message: "the template compiles",
	}
	before := acceptedOf(template)
	if before != nil && before.Status == metav1.ConditionTrue && before.ObservedGeneration == template.Generation {
		return accepted
	}
	compiled, err := r.Cache.Compile(template, nil)
	if err != nil {
		accepted.Status, accepted.Reason, accepted.Message = metav1.ConditionFalse, "Invalid", shorten(err.Error())
		return accepted
	}
	for _, kind := range compiled.Kinds() {
		addKinds(status, []v1alpha1.GroupKind{{Group: kind.Group, Kind: kind.Kind}})
	}
	return accepted
}

// watch says what keeps kinds from being populated: the cluster does not know them, or the operator lacks a right.
func (r *Templates) watch(ctx context.Context, kinds []v1alpha1.GroupKind) string {
	var problems []string
	for _, kind := range kinds {
		groupKind := schema.GroupKind{Group: kind.Group, Kind: kind.Kind}
		if err := r.Objects.Watch(ctx, groupKind); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s", groupKind, err))
		}
	}
	return shorten(strings.Join(problems, "; "))
}

// advance notes the template's state, and tells whether it is new.
func (r *Templates) advance(template *v1alpha1.NamespaceTemplate) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := stateOf(template)
	if r.taken[template.Name] == now {
		return false
	}
	r.taken[template.Name] = now
	return true
}

func acceptedOf(template *v1alpha1.NamespaceTemplate) *metav1.Condition {
	return apimeta.FindStatusCondition(template.Status.Conditions, v1alpha1.TemplateAccepted)
}

func stateOf(template *v1alpha1.NamespaceTemplate) state {
	s := state{uid: template.UID, generation: template.Generation, off: match.Off(template)}
	if accepted := acceptedOf(template); accepted != nil {
		s.accepted = accepted.Message
	}
	return s
}

// rollOut queues the namespaces that the template matches, or matched, or has objects in.
func (r *Templates) rollOut(ctx context.Context, old, template *v1alpha1.NamespaceTemplate) error {
	matching, err := r.matching(ctx, template)
	if err != nil {
		return err
	}
	affected := map[string]struct{}{}
	add := func(namespaces []string) {
		for _, namespace := range namespaces {
			affected[namespace] = struct{}{}
		}
	}
	add(matching)
	if old != nil {
		before, err := r.matching(ctx, old)
		if err != nil {
			return err
		}
		add(before)
	}
	add(slices.Collect(maps.Keys(r.Objects.Populated(template.Name))))
	r.Ledger.Expect(template.Name, matching)
	r.Queue.AddBulk(slices.Collect(maps.Keys(affected))...)
	return nil
}

// matching returns the namespaces that a template populates.
func (r *Templates) matching(ctx context.Context, template *v1alpha1.NamespaceTemplate) ([]string, error) {
	selector, err := match.Selector(template.Spec.Namespaces)
	if err != nil || match.Off(template) != "" {
		// It matches nothing; its status says why.
		return nil, nil
	}
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if match.Unpopulated(&list.Items[i], r.Exclude...) == "" {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// drop forgets a template that is gone. What it populated stays: with deletionPolicy Delete, it went before.
func (r *Templates) drop(name string) {
	r.Index.Delete(name)
	r.Cache.Forget(name)
	r.mu.Lock()
	delete(r.taken, name)
	r.mu.Unlock()
	r.Queue.AddBulk(r.Ledger.Drop(name)...)
}

// finalize makes sure that a template with deletionPolicy Delete stays until its objects are gone, and no other does.
func (r *Templates) finalize(ctx context.Context, template *v1alpha1.NamespaceTemplate) (*v1alpha1.NamespaceTemplate, error) {
	wanted := template.Spec.DeletionPolicy == v1alpha1.DeletionDelete
	if template.DeletionTimestamp != nil || controllerutil.ContainsFinalizer(template, v1alpha1.DeletionFinalizer) == wanted {
		return template, nil
	}
	changed := template.DeepCopy()
	if wanted {
		controllerutil.AddFinalizer(changed, v1alpha1.DeletionFinalizer)
	} else {
		controllerutil.RemoveFinalizer(changed, v1alpha1.DeletionFinalizer)
	}
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(template, client.MergeFromWithOptimisticLock{}))
	return changed, err
}

// release lets a template go that is being deleted, once none of its objects is left to prune.
func (r *Templates) release(ctx context.Context, template *v1alpha1.NamespaceTemplate) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(template, v1alpha1.DeletionFinalizer) {
		return reconcile.Result{}, nil
	}
	if template.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
		left, err := r.toPrune(ctx, template)
		if err != nil || left {
			return reconcile.Result{RequeueAfter: statusDelay}, err
		}
	}
	changed := template.DeepCopy()
	controllerutil.RemoveFinalizer(changed, v1alpha1.DeletionFinalizer)
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(template, client.MergeFromWithOptimisticLock{}))
	return reconcile.Result{}, client.IgnoreNotFound(err)
}

// toPrune tells whether a template has objects in namespaces that are populated still.
func (r *Templates) toPrune(ctx context.Context, template *v1alpha1.NamespaceTemplate) (bool, error) {
	for namespace, there := range r.Objects.Populated(template.Name) {
		ns := &corev1.Namespace{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: namespace}, ns)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, err
		}
		if match.Unpopulated(ns, r.Exclude...) == "" && slices.ContainsFunc(there, populate.Ours) {
			return true, nil
		}
	}
	return false, nil
}

// keepStatus writes how the template stands in its namespaces. Nothing is written before all of them were looked at
// once, so that a restart changes nothing.
func (r *Templates) keepStatus(ctx context.Context, template *v1alpha1.NamespaceTemplate) error {
	if !r.Ledger.Settled() {
		return nil
	}
	sum := r.Ledger.Summary(template.Name)
	status := template.Status.DeepCopy()
	status.Namespaces = sum.Counts
	status.Failures = sum.Failures
	condition := populatedCondition(sum)
	condition.ObservedGeneration = template.Generation
	if !apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.TemplateAccepted) {
		condition.Status, condition.Reason = metav1.ConditionFalse, "NotAccepted"
		condition.Message = "the template is not accepted; what it populated before stays as it is"
	}
	apimeta.SetStatusCondition(&status.Conditions, condition)
	_, err := r.writeStatus(ctx, template, status)
	return err
}

func populatedCondition(sum Summary) metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.TemplatePopulated, Status: metav1.ConditionTrue, Reason: "Populated"}
	counts := sum.Counts
	condition.Message = fmt.Sprintf("%d of %d namespaces are populated", counts.Populated, counts.Matched)
	switch {
	case sum.Pending > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, "Populating"
	case counts.Failed > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, "Failed"
	case counts.Drifted > 0:
		condition.Reason = "Drifted"
		condition.Message += fmt.Sprintf(", %d hold objects that drifted (driftPolicy Report)", counts.Drifted)
	case counts.Matched == 0:
		condition.Reason = "NoNamespaceMatches"
	}
	for _, overridden := range sum.Overridden {
		condition.Message += fmt.Sprintf("; %s is declared by templates %s and %s: the latter's is applied",
			overridden.Object, overridden.Template, overridden.By)
	}
	return condition
}

func (r *Templates) writeStatus(ctx context.Context, template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus) (*v1alpha1.NamespaceTemplate, error) {
	if equality.Semantic.DeepEqual(&template.Status, status) {
		return template, nil
	}
	changed := template.DeepCopy()
	changed.Status = *status
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.MergeFrom(template))); err != nil {
		return nil, fmt.Errorf("write the status of template %s: %w", template.Name, err)
	}
	return changed, nil
}

func addKinds(status *v1alpha1.NamespaceTemplateStatus, kinds []v1alpha1.GroupKind) {
	for _, kind := range kinds {
		if !slices.Contains(status.Kinds, kind) {
			status.Kinds = append(status.Kinds, kind)
		}
	}
}
