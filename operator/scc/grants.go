package scc

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// AccountRequester returns a service account of a pod as a requester, with the groups by which OpenShift knows it. With
// intersection it also has the group system:authenticated, as when it sends requests itself: otherwise no pod could use
// a constraint for all users. Without intersection, the creator of the pod is in that group in any case.
func AccountRequester(namespace, name string, intersection bool) attributes.Requester {
	groups := serviceaccount.MakeGroupNames(namespace)
	if intersection {
		groups = append(groups, "system:authenticated")
	}
	return attributes.Requester{Name: serviceaccount.MakeUsername(namespace, name), Groups: groups}
}

// subject returns the subject whose permission allows the use of a constraint, or why the constraint cannot be used.
// The service account comes first. With intersection, the subject is the user, and both need the permission.
func (r *Request) subject(constraint *v1alpha1.SecurityContextConstraints) (subject, denial string) {
	hasAccount := r.Pod.Spec.ServiceAccountName != ""
	byAccount := hasAccount && r.Usable(constraint, ServiceAccountSubject)
	if byAccount && !r.Intersection {
		return ServiceAccountSubject, ""
	}
	byUser := r.Usable(constraint, UserSubject)
	if byUser && (byAccount || !hasAccount || !r.Intersection) {
		return UserSubject, ""
	}
	var lacking []string
	if !byUser {
		lacking = append(lacking, UserSubject)
	}
	if hasAccount && !byAccount {
		lacking = append(lacking, ServiceAccountSubject)
	}
	denial = "not usable by " + strings.Join(lacking, " or ")
	if hasAccount && len(lacking) == 1 {
		denial += ": with --scc-match=intersection, both the user and the serviceaccount must be able to use it"
	}
	return "", denial
}

// Lists reports whether the users or groups of a constraint contain a requester or one of their groups.
func Lists(constraint *v1alpha1.SecurityContextConstraints, who attributes.Requester) bool {
	return slices.Contains(constraint.Users, who.Name) && who.Name != "" ||
		slices.ContainsFunc(who.Groups, func(group string) bool { return slices.Contains(constraint.Groups, group) })
}
