package population

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// Remains knows which objects, labels and annotations templates have in namespaces, and removes templates from the
// cluster when those that go with them are gone.
type Remains struct {
	// Client reads from the cache.
	Client  client.Client
	Objects *objects.Store
	Index   *match.Index
	Exclude []string
	// Passes are those of the controller of namespaces.
	Passes *passes

	mu sync.Mutex
	// before has, for each template that is being deleted, the last pass that may apply it.
	before map[types.UID]uint64
}

// finalize adds the finalizer to a template with deletionPolicy Delete, so that the template remains until its objects
// are deleted, and removes it from other templates.
func (r *Remains) finalize(
	ctx context.Context, template *v1alpha1.NamespaceTemplate,
) (*v1alpha1.NamespaceTemplate, error) {
	wanted := template.Spec.DeletionPolicy == v1alpha1.DeletionDelete
	if template.DeletionTimestamp != nil ||
		controllerutil.ContainsFinalizer(template, v1alpha1.DeletionFinalizer) == wanted {
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

// release removes the finalizer of a template that is being deleted, once none of its objects is left to prune, or at
// once if the templates are being uninstalled.
func (r *Remains) release(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, uninstalling bool,
) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(template, v1alpha1.DeletionFinalizer) {
		return reconcile.Result{}, nil
	}
	if !uninstalling && template.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
		isPruned, err := r.isPruned(ctx, template)
		if err != nil || !isPruned {
			return reconcile.Result{RequeueAfter: statusDelay}, err
		}
	}
	changed := template.DeepCopy()
	controllerutil.RemoveFinalizer(changed, v1alpha1.DeletionFinalizer)
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(template, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	r.forget(template.UID)
	return reconcile.Result{}, nil
}

// isPruned reports whether a template has no objects, labels or annotations left that the operator removes before the
// template is gone. A pass that began while the template was in force may still write some.
func (r *Remains) isPruned(ctx context.Context, template *v1alpha1.NamespaceTemplate) (bool, error) {
	if !r.Passes.haveEnded(r.lastPass(template.UID), template.Name) {
		return false, nil
	}
	left, isKnown, err := r.toPrune(ctx, template)
	if err != nil || !isKnown || len(left) > 0 {
		return false, err
	}
	names, err := r.withMetadataOf(ctx, template)
	return len(names) == 0, err
}

// lastPass returns the last pass that began before this function was first called for a template, whose end is in the
// index by then: no later one applies it.
func (r *Remains) lastPass(template types.UID) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.before[template]; !known {
		if r.before == nil {
			r.before = map[types.UID]uint64{}
		}
		r.before[template] = r.Passes.begun()
	}
	return r.before[template]
}

func (r *Remains) forget(template types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.before, template)
}

// toPrune returns the objects of a template in namespaces that it populates, which the operator deletes before the
// template. isKnown is false if there may be some of a kind that cannot be listed.
func (r *Remains) toPrune(
	ctx context.Context, template *v1alpha1.NamespaceTemplate,
) (left []*metav1.PartialObjectMetadata, isKnown bool, err error) {
	for _, kind := range template.Status.Kinds {
		if err := r.Objects.Unlisted(schema.GroupKind(kind)); err != nil {
			ctrl.LoggerFrom(ctx).Info("the template is kept until its objects are known", "kind",
				schema.GroupKind(kind).String(), "reason", err.Error())
			return nil, false, nil
		}
	}
	for namespace, there := range r.Objects.Populated(template.Name) {
		ns := &corev1.Namespace{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: namespace}, ns)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if match.UnpopulatedReason(ns, r.Exclude...) != "" || r.Index.IsOutside(ns, template.Name) {
			continue
		}
		for _, object := range there {
			kind := object.GroupVersionKind().GroupKind()
			if !slices.Contains(template.Status.Kinds, v1alpha1.GroupKind{Group: kind.Group, Kind: kind.Kind}) {
				continue // an earlier template of that name has left it
			}
			if populate.Ours(object) && !r.isExempt(namespace, template.Name, kind, object.Name) {
				left = append(left, object)
			}
		}
	}
	return left, true, nil
}

// reportRemaining reports in the status of a template that is being deleted which of its objects delay that: those that
// are protected from deletion, or those in namespaces whose place in the hierarchy of policy spaces is unknown.
func (r *Remains) reportRemaining(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, status *v1alpha1.NamespaceTemplateStatus,
) error {
	if template.DeletionTimestamp == nil || template.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
		return nil
	}
	left, _, err := r.toPrune(ctx, template)
	if err != nil {
		return err
	}
	var protected, misplaced []string
	name := func(object *metav1.PartialObjectMetadata) string {
		return fmt.Sprintf("%s in namespace %s", render.IDOf(object), object.Namespace)
	}
	for _, object := range left {
		if populate.IsProtectedByTemplate(object) {
			protected = append(protected, name(object))
			continue
		}
		place, err := r.misplacement(ctx, object.Namespace)
		if err != nil {
			return err
		}
		if place != "" {
			misplaced = append(misplaced, name(object)+": "+place)
		}
	}
	report := func(is reporting.Kstatus, reason, message string, objects []string) {
		reporting.SetKstatus(&status.Conditions, template.Generation, is, reason, reporting.Shorten(fmt.Sprintf(
			"the template remains until %s can be deleted; "+message, reporting.Count(len(objects), "object"),
			slices.Min(objects))))
	}
	switch {
	case len(protected) > 0:
		report(reporting.Failed, populate.FindingProtected, "protected from deletion, the first is %s: a user with the "+
			"verb unprotect on it must remove its annotation "+v1alpha1.DeletionProtectionAnnotation, protected)
	case len(misplaced) > 0:
		report(reporting.Failed, "Misplaced", "the place of the namespace delays that, the first is %s", misplaced)
	}
	return nil
}

// misplacement returns why the place of a namespace in the hierarchy is unknown, or "".
func (r *Remains) misplacement(ctx context.Context, namespace string) (string, error) {
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: namespace}, ns, client.UnsafeDisableDeepCopy); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if condition := populate.PopulatedCondition(ns); condition != nil && populate.IsMisplacement(condition.Reason) {
		return condition.Message, nil
	}
	return "", nil
}

// withMetadataOf returns the namespaces with labels or annotations that the operator removes once the template is gone.
func (r *Remains) withMetadataOf(ctx context.Context, template *v1alpha1.NamespaceTemplate) ([]string, error) {
	if !template.Status.NamespaceMetadata {
		return nil, nil
	}
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		ns := &list.Items[i]
		if match.UnpopulatedReason(ns, r.Exclude...) == "" && !r.Index.IsOutside(ns, template.Name) &&
			!r.isExempt(ns.Name, template.Name, render.NamespaceKind.GroupKind(), ns.Name) &&
			populate.MayPruneMetadata(ns, template.Name, template.UID) {
			names = append(names, ns.Name)
		}
	}
	return names, nil
}

func (r *Remains) isExempt(namespace, template string, kind schema.GroupKind, name string) bool {
	return r.Index.Exemptions(namespace).OfObject(template, kind, name) != nil
}
