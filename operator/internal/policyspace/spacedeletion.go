package policyspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// spaceUse is what keeps a policy space from being deleted.
type spaceUse struct {
	// namespaces are the names of the namespaces in and below the policy space.
	namespaces []string
	// children are the names of the child policy spaces with some of these namespaces in or below them.
	children []string
}

// checkUnused denies the deletion of a policy space in or below which there are namespaces. These would keep what they
// have, but inherit no change, and no quota would limit them.
//
// Policy spaces without namespaces do not count: they have no effect, and tools delete a hierarchy in any order. Nor do
// namespaces that are being deleted. A tree may be applied by a program that deletes a renamed policy space first and
// moves its namespaces later, as Flux does, so a ServiceAccount may delete a policy space of a tree.
func (a *SpaceAdmission) checkUnused(ctx context.Context, request *webhook.Request) error {
	space := request.OldObject
	if space == nil || space.GetDeletionTimestamp() != nil || isOfTree(space) && isByServiceAccount(request) {
		return nil
	}
	use, err := useOf(ctx, a.missing.cached, a.live, space.GetName())
	if err == nil && len(use.namespaces) > 0 {
		// The cache may have a child that has moved elsewhere.
		use, err = useOf(ctx, a.live, a.live, space.GetName())
	}
	if err != nil || len(use.namespaces) == 0 {
		return err
	}
	for _, listed := range []struct {
		names           *[]string
		group, resource string
	}{
		{&use.namespaces, corev1.GroupName, "namespaces"},
		{&use.children, v1alpha1.PolicySpaces.Group, v1alpha1.PolicySpaces.Resource},
	} {
		allowed, err := webhook.IsAllowed(ctx, a.missing.reviews, request.UserInfo, authorizationv1.ResourceAttributes{
			Verb: "list", Group: listed.group, Version: "*", Resource: listed.resource,
		})
		if err != nil || !allowed { // a review that fails does not let the request pass
			clear(*listed.names)
		}
	}
	return webhook.Deny(codes.PolicySpaceInUse, use.denial(space.GetName()))
}

// IsUsed reports whether there are namespaces in or below a policy space, which need not exist, as a reader has them.
func IsUsed(ctx context.Context, reader client.Reader, space string) (bool, error) {
	use, err := useOf(ctx, reader, reader, space)
	return len(use.namespaces) > 0, err
}

// useOf returns what uses a policy space. It reads the hierarchy with spaces, and the namespaces with live.
func useOf(ctx context.Context, spaces, live client.Reader, space string) (spaceUse, error) {
	forest, _, err := readForest(ctx, spaces)
	if err != nil {
		return spaceUse{}, fmt.Errorf("list policyspaces: %w", err)
	}
	var labelled client.ListOption = client.MatchingLabels{v1alpha1.PolicySpaceLabel: space}
	if len(forest.Below(space)) > 1 {
		labelled = client.HasLabels{v1alpha1.PolicySpaceLabel}
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := live.List(ctx, namespaces, labelled); err != nil {
		return spaceUse{}, fmt.Errorf("list namespaces: %w", err)
	}
	return newSpaceUse(forest, space, namespaces.Items), nil
}

// newSpaceUse returns which of some namespaces use a policy space.
func newSpaceUse(forest hierarchy.Forest, space string, namespaces []metav1.PartialObjectMetadata) spaceUse {
	var use spaceUse
	used := map[string]bool{}
	below := forest.Below(space)
	for i := range namespaces {
		if at := namespaces[i].Labels[v1alpha1.PolicySpaceLabel]; below[at] && namespaces[i].DeletionTimestamp == nil {
			use.namespaces = append(use.namespaces, namespaces[i].Name)
			used[at] = true
		}
	}
	slices.Sort(use.namespaces)
	for _, child := range forest.Children(space) {
		for at := range forest.Below(child) {
			if used[at] {
				use.children = append(use.children, child)
				break
			}
		}
	}
	return use
}

// maxListed is how many namespaces and child policy spaces a denial names.
const maxListed = 3

// denial returns why a policy space cannot be deleted, and what to do. It does not contain names that are empty.
func (u spaceUse) denial(space string) string {
	where, are := "in it", "namespaces are"
	if len(u.namespaces) == 1 {
		are = "namespace is"
	}
	if len(u.children) > 0 {
		where = "in it or in policyspaces below it" + inParentheses(u.children)
	}
	return fmt.Sprintf("policyspace %q is in use: %d %s %s%s: first delete them, or move them to another policyspace "+
		"by the label %s", space, len(u.namespaces), are, where, inParentheses(u.namespaces), v1alpha1.PolicySpaceLabel)
}

// inParentheses returns the first names, such as (a, b, c and 2 more), or "" if the names are empty.
func inParentheses(names []string) string {
	if names[0] == "" {
		return ""
	}
	text := strings.Join(names[:min(len(names), maxListed)], ", ")
	if more := len(names) - maxListed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return " (" + text + ")"
}
