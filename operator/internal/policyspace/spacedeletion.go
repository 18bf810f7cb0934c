package policyspace

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// checkUnused denies the deletion of a policy space in or below which there are namespaces. These would keep what they
// have, but inherit no change, and no quota would limit them.
//
// Policy spaces without namespaces do not count: they have no effect, and tools delete a hierarchy in any order. A tree
// may be applied by a program that deletes a renamed policy space first and moves its namespaces later, like Flux, so
// a ServiceAccount may delete a policy space of a tree.
func (a *SpaceAdmission) checkUnused(ctx context.Context, request *webhook.Request) error {
	space := request.OldObject
	if space == nil || space.GetDeletionTimestamp() != nil || isOfTree(space) && isByServiceAccount(request) {
		return nil
	}
	used, err := countIn(ctx, a.missing.cached, a.live, space.GetName())
	if err == nil && used > 0 {
		// The cache may have a child that has moved elsewhere.
		used, err = countIn(ctx, a.live, a.live, space.GetName())
	}
	if err != nil || used == 0 {
		return err
	}
	return webhook.Deny(codes.PolicySpaceInUse, fmt.Sprintf("policyspace %q is in use (namespaces in and below it: %d): "+
		"first delete them, or move them to another policyspace by the label %s", space.GetName(), used,
		v1alpha1.PolicySpaceLabel))
}

// IsUsed reports whether there are namespaces in or below a policy space, which need not exist, as a reader has them.
func IsUsed(ctx context.Context, reader client.Reader, space string) (bool, error) {
	used, err := countIn(ctx, reader, reader, space)
	return used > 0, err
}

// countIn returns how many namespaces are in and below a policy space by their labels, without those that are being
// deleted. It reads the hierarchy with spaces, and the namespaces with live.
func countIn(ctx context.Context, spaces, live client.Reader, space string) (int, error) {
	forest, _, err := readForest(ctx, spaces)
	if err != nil {
		return 0, fmt.Errorf("list policyspaces: %w", err)
	}
	below := forest.Below(space)
	var labelled client.ListOption = client.MatchingLabels{v1alpha1.PolicySpaceLabel: space}
	if len(below) > 1 {
		labelled = client.HasLabels{v1alpha1.PolicySpaceLabel}
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := live.List(ctx, namespaces, labelled); err != nil {
		return 0, fmt.Errorf("list namespaces: %w", err)
	}
	count := 0
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		if below[ns.Labels[v1alpha1.PolicySpaceLabel]] && ns.DeletionTimestamp == nil {
			count++
		}
	}
	return count, nil
}
