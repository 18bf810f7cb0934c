package selection

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// mayUseAll reports whether the user of a request has the verb use on all templates. No template restricts this user,
// and this user may restrict others.
func (a *Admission) mayUseAll(ctx context.Context, request *webhook.Request) (bool, error) {
	return webhook.IsAllowed(ctx, a.Reviews, request.UserInfo, authorizationv1.ResourceAttributes{
		Verb: v1alpha1.VerbUse, Group: v1alpha1.GroupVersion.Group, Version: "*",
		Resource: v1alpha1.NamespaceTemplates.Resource,
	})
}

// restricts returns the denial of a template that would restrict other users.
func restricts(request *webhook.Request) error {
	return webhook.Deny(codes.TemplateAuthor, fmt.Sprintf("template %s requires permission for more namespaces than "+
		"before, so users without the verb use on it could no longer create or label them: user %q needs the verb use "+
		"on all namespacetemplates in the API group %s: ask an administrator for that right, or to make the change",
		webhook.GivenName(request), request.UserInfo.Username, v1alpha1.GroupVersion.Group))
}
