package hierarchy

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stripServerFields removes the fields that the API server sets, which the output of kubectl get contains. It reports
// whether there were any.
func (l *loader) stripServerFields(o Object) bool {
	meta := o.Object.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
	before := *meta
	annotations := maps.Clone(before.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	*meta = metav1.ObjectMeta{
		Name: before.Name, Namespace: before.Namespace, Labels: before.Labels, Annotations: annotations,
		Finalizers: before.Finalizers,
	}
	switch typed := o.Object.(type) {
	case *corev1.Namespace:
		typed.Spec, typed.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	case *corev1.ResourceQuota:
		typed.Status = corev1.ResourceQuotaStatus{}
	}
	if equality.Semantic.DeepEqual(before, *meta) {
		return false
	}
	l.warn(o.Path, o.lines.Of("metadata"),
		o.describe()+" has fields that the API server sets, such as uid and resourceVersion: they are ignored")
	return true
}
