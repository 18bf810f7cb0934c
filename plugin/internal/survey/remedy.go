package survey

import (
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// Remedy returns what to do about a namespace that is not populated until a person acts, by the reason of its Populated
// condition. It returns "" for a reason that does not say it, such as that objects failed.
func Remedy(namespace, reason string) string {
	switch reason {
	case populate.ConditionTemplateNotAccepted:
		return "Correct the template that the message names."
	case populate.ConditionValueMissing:
		return "Have a user who may set the label or annotation set it: 'kubectl nstpl attributes' lists the roles."
	case populate.ConditionPolicySpaceNotFound:
		return "Create the policy space, or correct the label " + v1alpha1.PolicySpaceLabel + " of the namespace or the " +
			"parent of the policy space."
	case populate.ConditionNotAdopted:
		return fmt.Sprintf("See what would be deleted with 'kubectl nstpl diff --tree DIR', then run 'kubectl annotate "+
			"namespace %s %s=true', or take the namespace out of the policy space.",
			namespace, v1alpha1.AdoptAnnotation)
	}
	return ""
}

// WhileNotAccepted returns what is in force while a template with a status is not accepted.
func WhileNotAccepted(status v1alpha1.NamespaceTemplateStatus) string {
	accepted := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplateAccepted)
	switch {
	case accepted != nil && accepted.Reason == v1alpha1.TemplateValueNotProtected:
		return "Meanwhile, the objects stay as they are in the namespaces whose revision uses the value."
	case len(status.Revisions) == 0:
		return "Until then, it populates no namespace."
	}
	return "The last accepted revision stays in force."
}
