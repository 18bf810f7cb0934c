package namespace

import (
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// isPopulated reports whether the Populated condition of a namespace is true.
func isPopulated(ns *corev1.Namespace) bool {
	condition := populate.PopulatedCondition(ns)
	return condition != nil && condition.Status == corev1.ConditionTrue
}
