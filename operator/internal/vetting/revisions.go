package vetting

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/internal/revisions"
)

// exposes reports whether an edit lets revisions of the template into force in namespaces where no revision was: it
// enables the template, or no longer requires a permission. Both are metadata, which all revisions share. An edit that
// lets namespaces keep grants of earlier revisions counts, too, and one that keeps the operator from deleting objects.
func (e edit) exposes() bool {
	return e.old != nil && e.updated != nil && (e.enables() || e.abandons() ||
		!e.old.Spec.Rollout.KeepsRevoked() && e.updated.Spec.Rollout.KeepsRevoked() ||
		match.RequiresPermission(e.old) && !match.RequiresPermission(e.updated))
}

// abandons reports whether an edit makes objects stay that the operator would delete before the template: it removes
// the finalizer, or the deletionPolicy because of which the template has one.
func (e edit) abandons() bool {
	return controllerutil.ContainsFinalizer(e.old, v1alpha1.DeletionFinalizer) &&
		(!controllerutil.ContainsFinalizer(e.updated, v1alpha1.DeletionFinalizer) ||
			e.updated.Spec.DeletionPolicy != v1alpha1.DeletionDelete)
}

// judgeRevisions judges the earlier revisions that namespaces would have after the edit until its rollout reaches them,
// as if the author exposed each of them. Otherwise an author could change and enable a template, and so populate what
// only an earlier author was allowed to populate. If the edit changes the tree of the template, it is judged for the
// authoritative ones of these revisions.
func (v *review) judgeRevisions(ctx context.Context) ([]error, error) {
	if !v.exposes() && !v.changesTree() || v.unlimited {
		return nil, nil
	}
	earlier, err := v.earlierSpecs(ctx)
	if err != nil {
		return nil, err
	}
	var all []error
	for _, spec := range earlier {
		request := *v.request // its warnings remain those about the updated template
		exposed := &review{Admission: v.Admission, request: &request, author: v.author, began: v.began}
		exposed.old, exposed.updated = v.old.DeepCopy(), v.updated.DeepCopy()
		exposed.old.Spec, exposed.updated.Spec = sharing(spec, v.old.Spec), sharing(spec, v.updated.Spec)
		problems, err := exposed.judge(ctx)
		if err != nil {
			return nil, err
		}
		for _, problem := range problems {
			all = append(all, rightsProblem{fmt.Errorf("namespaces would have an earlier revision until the rollout reaches "+
				"them: %w", problem)})
		}
	}
	return all, nil
}

// sharing returns the spec of a revision with those fields of the stored spec that all revisions share. An edit of
// these fields may be what exposes the revision.
func sharing(revision, stored v1alpha1.NamespaceTemplateSpec) v1alpha1.NamespaceTemplateSpec {
	revision.Rollout, revision.DeletionPolicy = stored.Rollout, stored.DeletionPolicy
	return revision
}

// earlierSpecs returns the specs of the revisions in force of the stored template, except those that populate the same
// as the updated template.
func (v *review) earlierSpecs(ctx context.Context) ([]v1alpha1.NamespaceTemplateSpec, error) {
	inForce, err := v.Outlines.revisions.InForce(ctx, v.old)
	if err != nil {
		return nil, err
	}
	var earlier []v1alpha1.NamespaceTemplateSpec
	for _, revision := range inForce {
		if !revisions.PopulateSame(revision.Spec, v.updated.Spec) {
			earlier = append(earlier, revision.Spec)
		}
	}
	return earlier, nil
}
