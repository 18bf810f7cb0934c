package attributes

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Subject is who can hold a role: a user or a group. A service account is the user that it acts as.
type Subject struct {
	Group bool
	Name  string
}

// SubjectOf returns whom a subject of a binding means, as RBAC reads it. A service account without a namespace is one
// of the binding's; in a ClusterRoleBinding, whose namespace is empty, it is nobody.
func SubjectOf(subject rbacv1.Subject, namespace string) (Subject, bool) {
	switch subject.Kind {
	case rbacv1.UserKind:
		return Subject{Name: subject.Name}, true
	case rbacv1.GroupKind:
		return Subject{Group: true, Name: subject.Name}, true
	case rbacv1.ServiceAccountKind:
		if subject.Namespace != "" {
			namespace = subject.Namespace
		}
		return Subject{Name: "system:serviceaccount:" + namespace + ":" + subject.Name}, namespace != ""
	}
	return Subject{}, false
}

// Requester is who makes a request.
type Requester struct {
	Name   string
	Groups []string
}

// Is tells whether a subject means the requester.
func (r Requester) Is(subject Subject) bool {
	if subject.Group {
		return slices.Contains(r.Groups, subject.Name)
	}
	return subject.Name == r.Name
}
