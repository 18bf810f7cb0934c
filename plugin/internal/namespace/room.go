package namespace

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// noteRoom prints a note if a policyspace that the namespace enters has no room for another namespace. It prints none
// if the user may not read the policyspaces or the namespaces: then admission answers.
func (p *preview) noteRoom(
	ctx context.Context, predicted *prediction, caller *cluster.Cluster, ns *corev1.Namespace,
) error {
	space, before := ns.Labels[v1alpha1.PolicySpaceLabel], ""
	if predicted.live != nil {
		before = predicted.live.Labels[v1alpha1.PolicySpaceLabel]
	}
	if space == before {
		return nil
	}
	spaces, err := predicted.cluster.PolicySpaces(ctx)
	if err != nil {
		return ignoreForbidden(err)
	}
	forest := hierarchy.NewForest(spaces)
	entered := enteredSpaces(forest, space, before)
	if len(entered) == 0 {
		return nil
	}
	namespaces, err := predicted.cluster.ListNamespaces(ctx, v1alpha1.PolicySpaceLabel)
	if err != nil {
		return ignoreForbidden(err)
	}
	creator := quota.Creator{Name: ns.Annotations[v1alpha1.CreatorAnnotation]}
	if user, err := caller.Caller(ctx); err == nil && user.Name == creator.Name {
		creator.Groups = user.Groups
	}
	for _, limiting := range entered {
		use := namespaceUse(forest.Below(limiting.Name), namespaces, ns.Name, creator.Name)
		if err := quota.CheckNamespaces(limiting, creator, use); err != nil {
			p.Note("admission would deny namespace/%s: %v", ns.Name, err)
		}
	}
	return nil
}

// ignoreForbidden returns nil for an error about missing permissions, and other errors as they are.
func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// enteredSpaces returns the policyspaces that limit namespaces and in which a namespace is new if its label changes,
// the nearest first. It returns none if the place is unknown.
func enteredSpaces(forest hierarchy.Forest, space, before string) []*v1alpha1.PolicySpace {
	lineage, err := forest.Lineage(space)
	left, errLeft := forest.Lineage(before)
	if before == "" {
		errLeft = nil
	}
	if errors.Join(err, errLeft) != nil {
		return nil
	}
	return slices.DeleteFunc(lineage, func(entered *v1alpha1.PolicySpace) bool {
		return !quota.LimitsNamespaces(entered) || slices.Contains(left, entered)
	})
}

// namespaceUse counts the namespaces in some policyspaces, without the one of a name.
func namespaceUse(in map[string]bool, namespaces []*corev1.Namespace, without, creator string) quota.NamespaceUse {
	var use quota.NamespaceUse
	for _, ns := range namespaces {
		isIn := slices.ContainsFunc(hierarchy.CountedIn(ns), func(space string) bool { return in[space] })
		if ns.Name == without || !isIn {
			continue
		}
		use.Existing++
		if ns.Annotations[v1alpha1.CreatorAnnotation] == creator {
			use.ExistingOfCreator++
		}
	}
	return use
}
