package vetting

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/objects"
)

// ownRights returns the RBAC rules that the operator lacks for a template. The status of the template reports them,
// too.
func (a *Admission) ownRights(ctx context.Context, base *render.Compiled, kinds []resolvedKind) ([]string, error) {
	var warnings []string
	for _, kind := range kinds {
		if kind.guessed {
			continue
		}
		err := objects.CheckRights(ctx, a.clients.AuthorizationV1().SelfSubjectAccessReviews(), kind.resource)
		if missing, ok := errors.AsType[*objects.MissingRule](err); ok {
			warnings = append(warnings, missing.Error())
		} else if err != nil {
			return nil, err
		}
	}
	bindings, err := a.ownBindings(ctx, base)
	return append(warnings, bindings...), err
}

// ownBindings returns warnings about the ClusterRoles that the operator may not bind.
func (a *Admission) ownBindings(ctx context.Context, base *render.Compiled) ([]string, error) {
	grants, _ := grantsOf([]render.Variant{{Compiled: base}}, func(string) bool { return false })
	var warnings []string
	for _, g := range grants {
		if g.granting.verb != "bind" || g.granting.resource != "clusterroles" {
			continue
		}
		allowed, err := a.operatorHolds(ctx, g.granting)
		if err != nil {
			return nil, err
		}
		if names := fmt.Sprintf("resourceNames: [%q], ", g.granting.name); !allowed {
			if g.granting.name == "" {
				names = ""
			}
			warnings = append(warnings,
				fmt.Sprintf(`%s: the operator may not %s: add a ClusterRole with the label %s: "true" and the rule `+
					`{apiGroups: [%q], resources: ["clusterroles"], %sverbs: [bind]}`, g.object, g.granting,
					v1alpha1.AggregateLabel, rbacv1.GroupName, names))
		}
	}
	return warnings, nil
}
