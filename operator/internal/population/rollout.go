package population

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// rolledOut returns the state of a template that was rolled out last.
func (r *Templates) rolledOut(template string) state {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.rolled[template]
}

func (r *Templates) setRolledOut(template string, now state) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rolled[template] = now
}

func acceptedOf(template *v1alpha1.NamespaceTemplate) *metav1.Condition {
	return apimeta.FindStatusCondition(template.Status.Conditions, v1alpha1.TemplateAccepted)
}

func stateOf(template *v1alpha1.NamespaceTemplate) state {
	s := state{uid: template.UID, generation: template.Generation, off: match.DisabledReason(template)}
	if accepted := acceptedOf(template); accepted != nil {
		s.accepted = accepted.Message
	}
	return s
}

// rollOut queues the namespaces that a template selects, selected before, or has objects in, if its state changed.
func (r *Templates) rollOut(ctx context.Context, old, template *v1alpha1.NamespaceTemplate) error {
	now := stateOf(template)
	if now == r.rolledOut(template.Name) {
		return nil
	}
	matching, err := r.selectedBy(ctx, template)
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
		before, err := r.selectedBy(ctx, old)
		if err != nil {
			return err
		}
		add(before)
	}
	add(slices.Collect(maps.Keys(r.Objects.Populated(template.Name))))
	r.Results.SetPending(template.Name, template.Generation, matching)
	r.Queue.AddBulk(slices.Collect(maps.Keys(affected))...)
	r.setRolledOut(template.Name, now)
	return nil
}

// selectedBy returns the namespaces that a template populates, and those that are opted out, which its status counts.
func (r *Templates) selectedBy(ctx context.Context, template *v1alpha1.NamespaceTemplate) ([]string, error) {
	selector, err := match.Selector(template.Spec.Namespaces)
	if err != nil || match.DisabledReason(template) != "" {
		return nil, nil //nolint:nilerr // it matches nothing, and its status says why
	}
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.MatchingLabelsSelector{Selector: selector},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		if match.OptedOut(&list.Items[i]) || match.UnpopulatedReason(&list.Items[i], r.Exclude...) == "" {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// drop forgets a deleted template. Its objects remain; with deletionPolicy Delete, they were deleted before it.
func (r *Templates) drop(name string) {
	r.Index.Delete(name)
	r.Cache.Forget(name)
	r.mu.Lock()
	delete(r.rolled, name)
	r.mu.Unlock()
	r.Queue.AddBulk(r.Results.ForgetTemplate(name)...)
}

// Behind reports whether a template selects a namespace that was not populated with its current generation: the
// template was accepted since, or is not accepted yet. The latter is read from the cache, or, for a namespace that no
// template seems to select, from the API server.
func (r *Templates) Behind(
	ctx context.Context, ns *corev1.Namespace, populated []*v1alpha1.NamespaceTemplate,
) (bool, error) {
	var reader client.Reader = r.Client
	if len(populated) == 0 {
		reader = r.Live
	}
	templates := &v1alpha1.NamespaceTemplateList{}
	if err := reader.List(ctx, templates, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list templates that select namespace %s: %w", ns.Name, err)
	}
	for i := range templates.Items {
		template := &templates.Items[i]
		taken := r.Index.Get(template.Name)
		if taken != nil && sameGeneration(taken, template) &&
			match.DisabledReason(taken) == match.DisabledReason(template) {
			continue
		}
		if match.Explain(template, ns).Matches {
			return true, nil
		}
	}
	// This comes last, because a template that was skipped above may have been accepted just then.
	return !slices.EqualFunc(r.Index.Match(ns), populated, sameGeneration), nil
}

func sameGeneration(a, b *v1alpha1.NamespaceTemplate) bool {
	return a.UID == b.UID && a.Generation == b.Generation
}

// Current reports whether every template is accepted as it was at a resourceVersion, or as it is now if the
// resourceVersion is empty.
func (r *Templates) Current(ctx context.Context, asOf string) (bool, error) {
	r.mu.Lock()
	known := r.currentAsOf
	r.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(asOf, known); asOf != "" && err == nil && order <= 0 {
		return true, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceTemplateList"))
	if err := r.Live.List(ctx, list); err != nil {
		return false, fmt.Errorf("list templates that are not accepted yet: %w", err)
	}
	for i := range list.Items {
		taken := r.Index.Get(list.Items[i].Name)
		if taken == nil || taken.UID != list.Items[i].UID || taken.Generation < list.Items[i].Generation {
			return false, nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.currentAsOf = list.ResourceVersion
	return true, nil
}
