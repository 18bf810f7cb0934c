package vetting

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// judgeGrants returns the grants that the author could not make. Without the right to bind or escalate a role, the
// author must hold the granted rights.
func (v *review) judgeGrants(ctx context.Context, grants []grant) ([]error, error) {
	granting := make([]right, 0, len(grants))
	for _, g := range grants {
		granting = append(granting, g.granting)
	}
	missing, err := v.author.missing(ctx, granting)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, g := range grants {
		var problem error
		if slices.Contains(missing, g.granting) {
			problem, err = v.judgeGrant(ctx, &g)
		} else if g.role != "" {
			problem, err = v.judgeBoundElsewhere(ctx, &g)
		}
		if err != nil {
			return nil, err
		}
		if problem != nil {
			problems = append(problems, rightsProblem{problem})
		}
	}
	return problems, nil
}

// judgeGrant returns why an author without the right to bind or escalate the role may not make a grant.
func (v *review) judgeGrant(ctx context.Context, g *grant) (problem, err error) {
	if err := v.readClusterRole(ctx, g); err != nil {
		return nil, err
	}
	reason, err := v.reasonNotHeld(ctx, g)
	if err != nil || reason == "" {
		return nil, err
	}
	return fmt.Errorf("%s: %s; %s needs the right to %s in all namespaces to declare it", g.object, reason, v.author,
		g.granting), nil
}

// reasonNotHeld returns why the author does not hold what a grant grants, or "".
func (v *review) reasonNotHeld(ctx context.Context, g *grant) (string, error) {
	if g.unknown != "" {
		return g.unknown, nil
	}
	if len(v.author.answers)+countRights(g.rules) > maxReviews {
		return fmt.Sprintf("it grants more than %d rights, which are too many to check", maxReviews), nil
	}
	missing, err := v.author.missing(ctx, rightsIn(g.rules))
	if err != nil || len(missing) == 0 {
		return "", err
	}
	return "it grants what its author does not hold in all namespaces: " + listRights(missing), nil
}

// judgeBoundElsewhere returns why an author who may escalate may nevertheless not declare a Role: a RoleBinding of
// another template may refer to it, and grants it to the subjects in that template. The author needs the right to bind
// the Role or to change that template, or must hold the rules of the Role.
func (v *review) judgeBoundElsewhere(ctx context.Context, g *grant) (problem, err error) {
	selects := requirementsOf(v.updated.Spec.Namespaces)
	for _, other := range v.others {
		if !other.binds(g.role) || disjoint(selects, other.namespaces) {
			continue
		}
		bind, change := grantingRight("bind", "roles", g.role), rightToChange(other.name)
		if len(v.author.answers)+2 > maxReviews {
			return fmt.Errorf(
				"%s: RoleBindings of too many other templates may refer to it to check them all: choose another name",
				g.object), nil
		}
		missing, err := v.author.missing(ctx, []right{bind, change})
		if err != nil {
			return nil, err
		}
		if len(missing) < 2 {
			continue
		}
		if reason, err := v.reasonNotHeld(ctx, g); err != nil || reason == "" {
			return nil, err
		}
		return fmt.Errorf(
			"%s: template %s may bind it; %s needs the right to %s in all namespaces, or to %s, to declare it",
			g.object, other.name, v.author, bind, change), nil
	}
	return nil, nil
}

// readClusterRole sets the rules of a grant that binds a ClusterRole.
func (a *Admission) readClusterRole(ctx context.Context, g *grant) error {
	if g.clusterRole == "" {
		return nil
	}
	var err error
	role := &rbacv1.ClusterRole{}
	// The API server cannot be asked for an invalid name.
	exists := len(content.IsPathSegmentName(g.clusterRole)) == 0
	if exists {
		role, err = a.Clients.RbacV1().ClusterRoles().Get(ctx, g.clusterRole, metav1.GetOptions{})
	}
	switch {
	case !exists || apierrors.IsNotFound(err):
		g.unknown = fmt.Sprintf("there is no ClusterRole %q yet, so it may have any rules", g.clusterRole)
		return nil
	case err != nil:
		return fmt.Errorf("get ClusterRole %q: %w", g.clusterRole, err)
	}
	g.rules = role.Rules
	return nil
}
