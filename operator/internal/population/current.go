package population

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/freshness"
)

// NewStored returns an index of the templates as a manager's cache has them. They may be newer than those that the
// controller of templates has accepted.
func NewStored(ctx context.Context, mgr ctrl.Manager) (*match.Index, error) {
	informer, err := mgr.GetCache().GetInformer(ctx, &v1alpha1.NamespaceTemplate{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	stored := match.NewIndex()
	set := func(object any) {
		if template, ok := object.(*v1alpha1.NamespaceTemplate); ok {
			stored.Set(template)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
				stored.Delete(name)
			}
		},
	})
	return stored, err
}

// Behind reports whether a template selects a namespace that was not populated with its current generation: the
// template was accepted since, or is not accepted yet. For a namespace that no template seems to select, the API server
// is asked for templates that are not in the cache.
func (r *Templates) Behind(
	ctx context.Context, ns *corev1.Namespace, populated []*v1alpha1.NamespaceTemplate,
) (bool, error) {
	if len(populated) == 0 {
		selected, err := r.selectedByUnaccepted(ctx, ns)
		if err != nil || selected {
			return selected, err
		}
	}
	for _, template := range r.Stored.Match(ns) {
		indexed := r.Index.Get(template.Name)
		if indexed == nil || !sameGeneration(indexed, template) ||
			match.DisabledReason(indexed) != match.DisabledReason(template) {
			return true, nil
		}
	}
	// This comes last, because a template that was skipped above may have been accepted just then.
	return !slices.EqualFunc(r.Index.Match(ns), populated, sameGeneration), nil
}

// selectedByUnaccepted reports whether a template that is not accepted as it is stored selects a namespace.
func (r *Templates) selectedByUnaccepted(ctx context.Context, ns *corev1.Namespace) (bool, error) {
	names, err := r.unaccepted(ctx, ns.ResourceVersion)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		template := &v1alpha1.NamespaceTemplate{}
		err := r.Live.Get(ctx, client.ObjectKey{Name: name}, template)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return false, fmt.Errorf("get template %s, which may select namespace %s: %w", name, ns.Name, err)
		case r.Index.Explain(template, ns).Matches:
			return true, nil
		}
	}
	return false, nil
}

func sameGeneration(a, b *v1alpha1.NamespaceTemplate) bool {
	return a.UID == b.UID && a.Generation == b.Generation
}

// Current reports whether every template is accepted as it was at a resourceVersion, or as it is now if the
// resourceVersion is empty.
func (r *Templates) Current(ctx context.Context, asOf string) (bool, error) {
	names, err := r.unaccepted(ctx, asOf)
	return err == nil && len(names) == 0, err
}

// generation is a generation of a template.
type generation struct {
	uid    types.UID
	number int64
}

// unaccepted returns the names of the templates that are not accepted as they were at a resourceVersion, or as they are
// now if the resourceVersion is empty. It lists the templates only if no earlier list is as new, and from time to time
// while some are not accepted: they may have been deleted, and are then never accepted. Of the namespaces that need a
// list at the same time, such as those of a policy space that moves, one lists them for all.
func (r *Templates) unaccepted(ctx context.Context, asOf string) ([]string, error) {
	called := time.Now()
	if names, isKnown, err := r.latestUnaccepted(asOf, called); isKnown {
		return names, err
	}
	r.listing.Lock()
	defer r.listing.Unlock()
	if names, isKnown, err := r.latestUnaccepted(asOf, called); isKnown {
		return names, err
	}
	latest := r.list(ctx)
	return r.withoutAcceptance(latest.unaccepted), latest.err
}

// latestUnaccepted returns the names by the latest list, and whether that suffices: it was begun after a time, or is as
// new as a resourceVersion. The error is that of a list which was begun after the time.
func (r *Templates) latestUnaccepted(asOf string, called time.Time) (names []string, isKnown bool, err error) {
	r.mu.Lock()
	latest := r.latest
	r.mu.Unlock()
	names = r.withoutAcceptance(latest.unaccepted)
	if latest.begun.After(called) {
		return names, true, latest.err
	}
	isListed := asOf != "" && freshness.AtLeast(latest.asOf, asOf)
	return names, isListed && (len(names) == 0 || time.Since(latest.begun) < requeueSoon), nil
}

// withoutAcceptance returns the names of those of some templates that are not accepted.
func (r *Templates) withoutAcceptance(templates map[string]generation) []string {
	var names []string
	for name, stored := range templates {
		if !r.accepted(name, stored) {
			names = append(names, name)
		}
	}
	return names
}

// list lists the templates, and returns the result, which it keeps.
func (r *Templates) list(ctx context.Context) listed {
	begun := time.Now()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceTemplateList"))
	err := r.Live.List(ctx, list)
	unaccepted := map[string]generation{}
	for i := range list.Items {
		item := &list.Items[i]
		if g := (generation{item.UID, item.Generation}); !r.accepted(item.Name, g) {
			unaccepted[item.Name] = g
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest.begun = begun; err != nil {
		r.latest.err = fmt.Errorf("list templates that are not accepted yet: %w", err)
	} else {
		r.latest = listed{begun: begun, unaccepted: unaccepted, asOf: list.ResourceVersion}
	}
	return r.latest
}

// accepted reports whether a generation of a template, or a later one, is accepted.
func (r *Templates) accepted(name string, g generation) bool {
	indexed := r.Index.Get(name)
	return indexed != nil && indexed.UID == g.uid && indexed.Generation >= g.number
}
