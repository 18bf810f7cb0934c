package attributes

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Subject is a user or a group that can hold a role. A ServiceAccount is a user.
type Subject struct {
	Group bool
	Name  string
}

// SubjectOf returns the subject of a binding, as RBAC interprets it, and whether it is valid. namespace is the
// namespace of the binding, which is also that of a ServiceAccount without one, or empty for a ClusterRoleBinding.
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
		return Subject{Name: serviceaccount.MakeUsername(namespace, subject.Name)}, namespace != ""
	}
	return Subject{}, false
}

// Requester is the user who makes a request.
type Requester struct {
	Name   string
	Groups []string
}

// Is reports whether a subject is the requester or one of their groups.
func (r Requester) Is(subject Subject) bool {
	if subject.Group {
		return slices.Contains(r.Groups, subject.Name)
	}
	return subject.Name == r.Name
}
