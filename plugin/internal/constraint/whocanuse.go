package constraint

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type whoCanUse struct {
	cli.Session
	all    bool
	output cli.ListFlags
}

func newWhoCanUse(s cli.Session) *cobra.Command {
	o := &whoCanUse{Session: s}
	cmd := &cobra.Command{
		Use:   "who-can-use NAME [-n NAMESPACE | -A] [-o json|yaml|...]",
		Short: "Show who may use SecurityContextConstraints",
		Long: templates.LongDesc(`
			Show who may use SecurityContextConstraints in a namespace: the users and groups that the constraints
			list, and the subjects that have the verb use on them by a role of RBAC. This includes subjects with all
			permissions, such as cluster-admin.`),
		Example: templates.Examples(`
			# Show who may use the constraints "privileged" in the namespace team-a
			kubectl nstpl scc who-can-use privileged -n team-a

			# Show who may use them in any namespace
			kubectl nstpl scc who-can-use privileged -A`),
		Args:              cli.OneArg("NAME"),
		ValidArgsFunction: s.CompleteObject(v1alpha1.SecurityContextConstraintses),
		RunE: cli.ConstraintsResource().Named(func(cmd *cobra.Command, name string) error {
			return o.run(cmd.Context(), name)
		}),
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "Show who may use the constraints in any namespace.")
	o.output.AddTo(cmd, cli.ListOptions{})
	return cmd
}

// constraintUser is a subject that may use constraints.
type constraintUser struct {
	Subject rbacv1.Subject `json:"subject"`
	// Namespace is the namespace in which the subject may use the constraints, or empty for all namespaces.
	Namespace string `json:"namespace,omitempty"`
	// By is the reason: a field of the constraints, or a binding and its role.
	By string `json:"by"`
}

func (o *whoCanUse) run(ctx context.Context, name string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	namespace := metav1.NamespaceAll
	if !o.all {
		if namespace, _, err = o.Namespace(); err != nil {
			return err
		}
	}
	constraints, err := c.Constraints(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(constraints, func(constraint *v1alpha1.SecurityContextConstraints) bool {
		return constraint.Name == name
	})
	if i < 0 {
		return apierrors.NewNotFound(v1alpha1.SecurityContextConstraintses.GroupResource(), name)
	}
	users := []constraintUser{}
	for _, user := range constraints[i].Users {
		users = append(users, constraintUser{
			Subject: rbacv1.Subject{Kind: rbacv1.UserKind, Name: user}, By: "users of the constraints",
		})
	}
	for _, group := range constraints[i].Groups {
		users = append(users, constraintUser{
			Subject: rbacv1.Subject{Kind: rbacv1.GroupKind, Name: group}, By: "groups of the constraints",
		})
	}
	byRole, err := byRoles(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	return cli.PrintList(o.Session, &o.output, cli.Printed[constraintUser]{
		Kind: "ConstraintUserList", Items: append(users, byRole...), Table: userTable,
		Empty: "neither the constraints nor RBAC allow a user or group to use them",
	})
}

// byRoles returns the subjects to which RBAC grants the verb use on the constraints.
func byRoles(ctx context.Context, c *cluster.Cluster, namespace, constraint string) ([]constraintUser, error) {
	bound, err := c.BoundSubjects(ctx, namespace, false)
	if err != nil {
		return nil, err
	}
	clusterRoles, err := c.ClusterRoles(ctx)
	if err != nil {
		return nil, err
	}
	roles, err := c.Roles(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var users []constraintUser
	add := func(kind, roleNamespace, role string, rules []rbacv1.PolicyRule) {
		if !slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return grantsUse(rule, constraint) }) {
			return
		}
		for _, subject := range bound[v1alpha1.RoleReference{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}] {
			if kind == v1alpha1.RoleKind && subject.Namespace != roleNamespace {
				continue
			}
			users = append(users, constraintUser{
				Subject: subject.Subject, Namespace: subject.Namespace,
				By: fmt.Sprintf("%s to %s %s", subject, kind, role),
			})
		}
	}
	for _, role := range clusterRoles {
		add(v1alpha1.ClusterRoleKind, "", role.Name, role.Rules)
	}
	for _, role := range roles {
		add(v1alpha1.RoleKind, role.Namespace, role.Name, role.Rules)
	}
	return users, nil
}

// grantsUse reports whether a rule of RBAC grants the verb use on the constraints.
func grantsUse(rule rbacv1.PolicyRule, constraint string) bool {
	matches := func(values []string, value string) bool {
		return slices.Contains(values, value) || slices.Contains(values, rbacv1.VerbAll)
	}
	return matches(rule.Verbs, v1alpha1.VerbUse) && matches(rule.APIGroups, v1alpha1.GroupVersion.Group) &&
		matches(rule.Resources, v1alpha1.SecurityContextConstraintses.Resource) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, constraint))
}

func userTable(users []constraintUser) output.Table {
	table := output.Table{Columns: []string{"Subject", "In", "By"}}
	for _, user := range users {
		table.Rows = append(table.Rows, []string{output.Subject(user.Subject), cmp.Or(user.Namespace, "*"), user.By})
	}
	return table
}
