package populate

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	patches "nstpl.dev/nstpl/operator/internal/patch"
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
	if i := populatedIndex(ns); i >= 0 {
		return &ns.Status.Conditions[i]
	}
	return nil
}

func populatedIndex(ns *corev1.Namespace) int {
	return slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == v1alpha1.NamespacePopulated
	})
}

const conditionsPath = "/status/conditions"

// UnlessRecorded returns a patch that the API server rejects if a leader has recorded something in the namespace since
// it was read. Users cannot write what it tests, so those who change the namespace all the time do not keep the
// operator from a write.
func UnlessRecorded(ns *corev1.Namespace) patches.Tested {
	return patches.Tested{}.Test("/metadata/uid", ns.UID).TestIn("/metadata/annotations", ns.Annotations,
		v1alpha1.ExistingAnnotation, v1alpha1.NamespaceMetadataAnnotation)
}

// UnlessReported returns a patch that the API server rejects, too, if a leader has reported on the namespace since. It
// is also rejected if the condition has another place since then, which users of namespaces/status can cause.
func UnlessReported(ns *corev1.Namespace) patches.Tested {
	if i := populatedIndex(ns); i >= 0 {
		return UnlessRecorded(ns).Test(elementPath(i), ns.Status.Conditions[i])
	}
	return UnlessRecorded(ns).Test(conditionsPath, ns.Status.Conditions)
}

// WithPopulated adds to a patch of UnlessReported that it replaces the Populated condition, or removes it if the new
// condition is nil.
func WithPopulated(tested patches.Tested, ns *corev1.Namespace, condition *corev1.NamespaceCondition) patches.Tested {
	i := populatedIndex(ns)
	if i >= 0 {
		tested = tested.Remove(elementPath(i))
	}
	switch {
	case condition == nil:
		return tested
	case i >= 0:
		return tested.Set(elementPath(i), condition)
	}
	return tested.Set(conditionsPath, append(slices.Clone(ns.Status.Conditions), *condition))
}

// elementPath returns the JSON pointer of a condition.
func elementPath(i int) string { return fmt.Sprintf("%s/%d", conditionsPath, i) }

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
