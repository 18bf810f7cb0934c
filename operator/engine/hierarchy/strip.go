package hierarchy

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stripServerFields removes the fields that the API server sets, which the output of kubectl get contains. It reports
// whether there were any.
func (l *loader) stripServerFields(o Object) bool {
	meta := o.Object.(metav1.Object)
	annotations := maps.Clone(meta.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	kept := metav1.ObjectMeta{
		Name: meta.GetName(), Namespace: meta.GetNamespace(), Labels: meta.GetLabels(), Annotations: annotations,
		Finalizers: meta.GetFinalizers(),
	}
	var before metav1.ObjectMeta
	switch typed := o.Object.(type) {
	case *corev1.Namespace:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
		typed.Spec, typed.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	case *corev1.ResourceQuota:
		before, typed.ObjectMeta, typed.Status = typed.ObjectMeta, kept, corev1.ResourceQuotaStatus{}
	case *rbacv1.Role:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
	case *rbacv1.RoleBinding:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
	case *rbacv1.ClusterRole:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
	case *rbacv1.ClusterRoleBinding:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
	}
	if equality.Semantic.DeepEqual(before, kept) {
		return false
	}
	l.warn(o.Path, o.lines.Of("metadata"),
		o.describe()+" has fields that the API server sets, such as uid and resourceVersion: they are ignored")
	return true
}
