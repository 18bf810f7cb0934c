package selfservice

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// ReservedNames validates the creation of namespaces that flags of the operator list by name. Templates or
// SecurityContextConstraints do not apply in them, so users must not create one whose name is free.
type ReservedNames struct {
	Names   []string
	Reviews authorizationv1client.SubjectAccessReviewInterface
}

// Plugin returns the row of the admission chain. Administrators also create the namespaces while no replica answers:
// nodes may need those of network drivers before they can run the operator.
func (r *ReservedNames) Plugin() webhook.Plugin {
	quoted := make([]string, 0, len(r.Names))
	for _, name := range r.Names {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	return webhook.Plugin{
		Name: "reserved-namespaces", Validator: r,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule("", "v1", admissionregistrationv1.ClusterScope, []string{"namespaces"},
				admissionregistrationv1.Create),
		},
		MatchConditions: webhook.Every("reserved-name",
			"object.metadata.name in ["+strings.Join(quoted, ", ")+"]",
			"!authorizer.group('policy.nstpl.dev').resource('namespacetemplates').check('patch').allowed()"),
		FailurePolicy:  admissionregistrationv1.Fail, // it is a permission check
		TimeoutSeconds: 5,
	}
}

// Validate implements webhook.Validator for creations of Namespaces.
func (r *ReservedNames) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Object == nil || !slices.Contains(r.Names, request.Object.GetName()) {
		return nil
	}
	isAdministrator, err := webhook.IsAllowed(ctx, r.Reviews, request.UserInfo, authorizationv1.ResourceAttributes{
		Verb: "patch", Group: v1alpha1.NamespaceTemplates.Group, Version: "*",
		Resource: v1alpha1.NamespaceTemplates.Resource,
	})
	if err != nil || isAdministrator {
		return err
	}
	return webhook.Deny(codes.ReservedNamespace, fmt.Sprintf(
		"a flag of the operator lists namespace %s, so templates or SecurityContextConstraints do not apply in it: "+
			"to create it, ask for the verb patch on %s in the API group %s",
		request.Object.GetName(), v1alpha1.NamespaceTemplates.Resource, v1alpha1.NamespaceTemplates.Group))
}
