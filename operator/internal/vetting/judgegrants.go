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

// judgeGrants says which grants the author could not make: who may not bind or escalate has to hold what is granted.
func (v *review) judgeGrants(ctx context.Context, grants []grant) ([]error, error) {
	powers := make([]question, 0, len(grants))
	for _, g := range grants {
		powers = append(powers, g.power)
	}
	powerless, err := v.author.missing(ctx, powers)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, g := range grants {
		var problem error
		if slices.Contains(powerless, g.power) {
			problem, err = v.judgeGrant(ctx, &g)
		} else if g.role != "" {
			problem, err = v.judgeBound(ctx, &g)
		}
		if err != nil {
			return nil, err
		}
		if problem != nil {
			problems = append(problems, problem)
		}
	}
	return problems, nil
}

// judgeGrant says why an author without the power to grant what they don't hold may not make a grant.
func (v *review) judgeGrant(ctx context.Context, g *grant) (problem, err error) {
	if err := v.readClusterRole(ctx, g); err != nil {
		return nil, err
	}
	reason, err := v.notHeld(ctx, g)
	if err != nil || reason == "" {
		return nil, err
	}
	return fmt.Errorf("%s: %s; %s needs the right to %s in all namespaces to declare it", g.object, reason, v.author,
		g.power), nil
}

// notHeld says why the author doesn't hold what a grant hands out, or returns "".
func (v *review) notHeld(ctx context.Context, g *grant) (string, error) {
	if g.unknown != "" {
		return g.unknown, nil
	}
	if v.author.asked()+size(g.rules) > maxQuestions {
		return fmt.Sprintf("it grants more than the %d rights that are looked into", maxQuestions), nil
	}
	missing, err := v.author.missing(ctx, questions(g.rules))
	if err != nil || len(missing) == 0 {
		return "", err
	}
	return "it grants what its author does not hold in all namespaces: " + sayMissing(missing), nil
}

// judgeBound says why an author who may escalate may not declare a Role all the same: a RoleBinding of another template
// hands it out, to whom that template says. Whoever could make that binding may declare it, or whoever may change that
// template.
func (v *review) judgeBound(ctx context.Context, g *grant) (problem, err error) {
	for _, other := range v.others {
		if !other.binds(g.role) || disjoint(v.updated.Spec.Namespaces, other.namespaces) {
			continue
		}
		bind, change := power("bind", "roles", g.role), mayChange(other.name)
		if v.author.asked()+2 > maxQuestions {
			return fmt.Errorf("%s: more templates may bind it than are looked into: choose another name", g.object), nil
		}
		missing, err := v.author.missing(ctx, []question{bind, change})
		if err != nil {
			return nil, err
		}
		if len(missing) < 2 {
			continue
		}
		if reason, err := v.notHeld(ctx, g); err != nil || reason == "" {
			return nil, err
		}
		return fmt.Errorf(
			"%s: template %s may bind it; %s needs the right to %s in all namespaces, or to %s, to declare it",
			g.object, other.name, v.author, bind, change), nil
	}
	return nil, nil
}

func (t *Admission) readClusterRole(ctx context.Context, g *grant) error {
	if g.clusterRole == "" {
		return nil
	}
	var err error
	role := &rbacv1.ClusterRole{}
	// A name that no object has can't be asked for.
	exists := len(content.IsPathSegmentName(g.clusterRole)) == 0
	if exists {
		role, err = t.clients.RbacV1().ClusterRoles().Get(ctx, g.clusterRole, metav1.GetOptions{})
	}
	switch {
	case !exists || apierrors.IsNotFound(err):
		g.unknown = fmt.Sprintf("there is no ClusterRole %q yet, so its rules may be any", g.clusterRole)
		return nil
	case err != nil:
		return fmt.Errorf("read ClusterRole %q: %w", g.clusterRole, err)
	}
	g.rules = role.Rules
	return nil
}
