package hierarchy

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// setDefaults sets the fields of a valid object to what the API server and its controllers would make of them. If it
// did not, the object in the cluster would always differ from the tree.
func setDefaults(object runtime.Object) {
	switch typed := object.(type) {
	case *rbacv1.RoleBinding:
		setBindingDefaults(&typed.RoleRef, typed.Subjects)
	case *rbacv1.ClusterRoleBinding:
		setBindingDefaults(&typed.RoleRef, typed.Subjects)
	case *rbacv1.ClusterRole:
		if typed.AggregationRule != nil {
			typed.Rules = nil // a controller sets them
		}
	}
}

func setBindingDefaults(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if subjects[i].APIGroup == "" && subjects[i].Kind != rbacv1.ServiceAccountKind {
			subjects[i].APIGroup = rbacv1.GroupName
		}
	}
}
