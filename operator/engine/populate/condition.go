package populate

import (
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Reasons of the Populated condition. All but the first are reasons of Populated=False.
const (
	// ConditionPopulated is the reason if every declared object is in the namespace.
	ConditionPopulated = "Populated"
	// ConditionRetrying is the reason if every failure may pass by itself. The operator tries again.
	ConditionRetrying = "Retrying"
	// ConditionObjectsFailed is the reason if objects cannot be applied, or revoked grants cannot be deleted.
	ConditionObjectsFailed = "ObjectsFailed"
	// ConditionTemplateNotAccepted is the reason if a template cannot be rendered for the namespace.
	ConditionTemplateNotAccepted = "TemplateNotAccepted"
	// ConditionValueMissing is the reason if the namespace lacks a label or an annotation from which a template
	// renders.
	ConditionValueMissing = "ValueMissing"
	// ConditionPolicySpaceNotFound is the reason if the namespace's place in the hierarchy of policy spaces is unknown.
	ConditionPolicySpaceNotFound = "PolicySpaceNotFound"
	// ConditionNotAdopted is the reason if the namespace existed before the tree of policies that claims it.
	ConditionNotAdopted = "NotAdopted"
	// ConditionExcluded is the reason if a flag of the operator excludes the namespace. Only the operator knows its
	// flags, so this tells all others.
	ConditionExcluded = "Excluded"
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

// IsMisplacement reports whether the reason of a Populated condition is that the namespace's place in the hierarchy of
// policy spaces is unknown: see Plan.WithoutDeletions.
func IsMisplacement(reason string) bool {
	return reason == ConditionPolicySpaceNotFound || reason == ConditionNotAdopted
}

// HasFailed reports whether a Populated condition, which may be nil, says that the namespace cannot be populated until
// a person acts. It does not for failures that may pass by themselves.
func HasFailed(condition *corev1.NamespaceCondition) bool {
	return condition != nil && condition.Status == corev1.ConditionFalse &&
		condition.Reason != ConditionRetrying && condition.Reason != ConditionExcluded
}
