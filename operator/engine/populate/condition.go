package populate

import (
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// PopulatedCondition returns the condition in which the operator reports how it populated a namespace, or nil.
func PopulatedCondition(ns *corev1.Namespace) *corev1.NamespaceCondition {
	for i := range ns.Status.Conditions {
		if ns.Status.Conditions[i].Type == v1alpha1.NamespacePopulated {
			return &ns.Status.Conditions[i]
		}
	}
	return nil
}
