package scc

import (
	"slices"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// Lists tells whether a constraint names somebody, or a group of theirs, among those who may use it.
func Lists(constraint *v1alpha1.SecurityContextConstraints, who attributes.Requester) bool {
	return slices.Contains(constraint.Users, who.Name) && who.Name != "" ||
		slices.ContainsFunc(who.Groups, func(group string) bool { return slices.Contains(constraint.Groups, group) })
}
