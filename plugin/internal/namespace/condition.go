package namespace

import (
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// populatedCondition returns the Populated condition of a namespace, which the operator sets, or nil.
func populatedCondition(ns *corev1.Namespace) *corev1.NamespaceCondition {
	for i := range ns.Status.Conditions {
		if ns.Status.Conditions[i].Type == v1alpha1.NamespacePopulated {
			return &ns.Status.Conditions[i]
		}
	}
	return nil
}

// isPopulated reports whether the Populated condition of a namespace is true.
func isPopulated(ns *corev1.Namespace) bool {
	condition := populatedCondition(ns)
	return condition != nil && condition.Status == corev1.ConditionTrue
}
