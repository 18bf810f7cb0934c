package population

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

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
