package scc

import (
	"slices"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// Lists reports whether the users or groups of a constraint contain a requester or one of their groups.
func Lists(constraint *v1alpha1.SecurityContextConstraints, who attributes.Requester) bool {
	return slices.Contains(constraint.Users, who.Name) && who.Name != "" ||
		slices.ContainsFunc(who.Groups, func(group string) bool { return slices.Contains(constraint.Groups, group) })
}
