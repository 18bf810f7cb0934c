package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// contents is what was read from a cluster.
type contents struct {
	time               time.Time
	cluster, selection string
	user               string
	versions           Versions

	namespaces []*corev1.Namespace
	// index has the templates. It is nil if the user may not list them.
	index        *match.Index
	templates    []*v1alpha1.NamespaceTemplate
	hasTemplates bool
	spaces       []*v1alpha1.PolicySpace
	repositories []v1alpha1.PolicyRepository
	exemptions   []*v1alpha1.TemplateExemption
	clusterRules []v1alpha1.ClusterProtectedAttribute
	rules        []v1alpha1.ProtectedAttribute
	constraints  []*v1alpha1.SecurityContextConstraints
	// bound is nil if the user may not list the bindings of roles.
	bound        cluster.BoundSubjects
	clusterRoles []*rbacv1.ClusterRole
	roles        []*rbacv1.Role

	// notes are sentences about what the user may not read, and about what may be old.
	notes []string
}

// readPolicies lists everything but namespaces, all at once. In is the only namespace whose bindings are read, or
// empty. What the user may not read is missing, and the notes say so.
func (x *contents) readPolicies(ctx context.Context, c *cluster.Cluster, in string) error {
	lists := []struct {
		resource, effect string
		list             func() error
	}{
		{"namespacetemplates", "templates are not shown", func() (err error) {
			x.templates, err = c.Templates(ctx)
			x.hasTemplates = err == nil
			return err
		}},
		{"policyspaces", "policy spaces and their quotas are not shown", func() (err error) {
			x.spaces, err = c.PolicySpaces(ctx)
			return err
		}},
		{"policyrepositories", "deletions that wait for a confirmation are not shown", func() (err error) {
			x.repositories, err = c.PolicyRepositories(ctx)
			return err
		}},
		{"rules on attributes", "protected attributes are not shown, or not all of them", func() (err error) {
			x.clusterRules, x.rules, err = c.AttributeRules(ctx, in)
			return err
		}},
		{"securitycontextconstraints", "users and groups that constraints list are not shown", func() (err error) {
			x.constraints, err = c.Constraints(ctx)
			return err
		}},
		{"bindings of roles", "subjects of permissions are unknown", func() (err error) {
			x.bound, err = c.BoundSubjects(ctx, in, false)
			return err
		}},
		{"clusterroles", "permissions that ClusterRoles grant are not shown", func() (err error) {
			x.clusterRoles, err = c.ClusterRoles(ctx)
			return err
		}},
		{"roles", "permissions that Roles grant are not shown", func() (err error) {
			x.roles, err = c.Roles(ctx, in)
			return err
		}},
	}
	errs := make([]error, len(lists))
	var listing sync.WaitGroup
	for i := range lists {
		listing.Go(func() { errs[i] = lists[i].list() })
	}
	listing.Wait()
	for i, err := range errs {
		if apierrors.IsForbidden(err) {
			x.notes = append(x.notes,
				fmt.Sprintf("%s may not list %s: %s", x.user, lists[i].resource, lists[i].effect))
			errs[i] = nil
		}
	}
	return firstOf(errs)
}

// firstOf returns one of several errors. All lists of a cluster without nstpl fail alike.
func firstOf(errs []error) error {
	if slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, cluster.NotInstalledError{}) }) {
		return cluster.NotInstalledError{}
	}
	return errors.Join(errs...)
}

// readSync reads whether nstpl-sync runs, if PolicyRepositories need it.
func (x *contents) readSync(ctx context.Context, c *cluster.Cluster) error {
	if len(x.repositories) == 0 {
		return nil
	}
	leader, err := c.Leader(ctx, cluster.SyncLease)
	missing := cli.NoSync(leader, err)
	switch {
	case apierrors.IsForbidden(err):
		missing = fmt.Sprintf("%s may not get the lease of nstpl-sync: whether it is running is unknown", x.user)
	case err != nil && missing == "":
		return err
	}
	if missing != "" {
		x.notes = append(x.notes, missing)
	}
	return nil
}

func (x *contents) readOperator(ctx context.Context, c *cluster.Cluster) error {
	operator, err := c.Operator(ctx)
	switch {
	case apierrors.IsForbidden(err):
		x.notes = append(x.notes, fmt.Sprintf("%s may not get the operator's lease: its version is unknown", x.user))
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	if missing := cli.NoOperator(operator, err, "states may be missing or old"); missing != "" {
		x.notes = append(x.notes, missing)
	}
	x.versions.Operator = operator.Version
	return nil
}

// readRevisions builds the index, which reads the older revisions that namespaces have.
func (x *contents) readRevisions(ctx context.Context, c *cluster.Cluster) {
	if !x.hasTemplates {
		return
	}
	index, unread := c.IndexWithoutExemptions(ctx, x.templates, x.namespaces)
	cluster.SetExemptions(index, x.exemptions)
	x.index = index
	for _, err := range unread {
		x.notes = append(x.notes, err.Error())
	}
}
