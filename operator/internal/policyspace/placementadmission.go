package policyspace

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// PlacementAdmission validates the label by which a namespace is in a policy space. nstpl-namespace-guard has checked
// before whether the requester may use the policy space.
type PlacementAdmission struct{ missing *missingSpaces }

// Validate implements webhook.Validator for creations and updates of Namespaces. It denies a label that names a policy
// space which does not exist. A label that does not change may name one: the namespace can be changed otherwise.
func (a *PlacementAdmission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Object == nil || request.SubResource != "" || appliesInOwnOrder(request, request.Object) {
		return nil
	}
	space := request.Object.GetLabels()[v1alpha1.PolicySpaceLabel]
	if space == "" || request.OldObject != nil && request.OldObject.GetLabels()[v1alpha1.PolicySpaceLabel] == space {
		return nil
	}
	return a.missing.check(ctx, request, space)
}

// Plugin returns the row of the admission chain. By the selector, the API server evaluates no expression for a
// namespace without the label.
func (a *PlacementAdmission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "placement", Validator: a,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule("", "v1", admissionregistrationv1.ClusterScope, []string{"namespaces"},
				admissionregistrationv1.Create, admissionregistrationv1.Update),
		},
		ObjectSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: v1alpha1.PolicySpaceLabel, Operator: metav1.LabelSelectorOpExists},
			{Key: v1alpha1.TreeLabel, Operator: metav1.LabelSelectorOpDoesNotExist},
		}},
		MatchConditions: webhook.Every("a-person-changes-the-policyspace",
			changesSpace,
			"!request.userInfo.username.startsWith('"+serviceaccount.ServiceAccountUsernamePrefix+"')"),
		// A namespace whose policy space does not exist is held, or keeps what it has.
		FailurePolicy:  admissionregistrationv1.Ignore,
		TimeoutSeconds: 5,
	}
}
