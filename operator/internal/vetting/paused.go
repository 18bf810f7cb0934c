package vetting

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	rollouts "nstpl.dev/nstpl/operator/engine/rollout"
)

// pauseWarnings returns a warning if namespaces do not get the change of an edit, because the rollout of the template
// is paused. It names the Roles and RoleBindings that the edit adds, changes or removes. It also warns of those that
// namespaces keep, paused or not: another user may have chosen that when the template declared no grants, or may have
// disabled the template.
func (e edit) pauseWarnings() []string {
	if e.old == nil || e.updated == nil ||
		equality.Semantic.DeepEqual(populatedBy(e.old.Spec), populatedBy(e.updated.Spec)) {
		return nil
	}
	rollout := e.updated.Spec.Rollout
	before, after := rbacObjects(render.AllDeclarations(e.old)), rbacObjects(render.AllDeclarations(e.updated))
	added, removed := namesOfGrants(withoutSame(after, before)), namesOfGrants(withoutSame(before, after))
	isPaused, keeps := rollout != nil && rollout.Paused, removed != "" && rollout.KeepsRevoked()
	const because = ", because spec.rollout.revocation is WithRollout"
	switch disabled := match.DisabledReason(e.updated); {
	case disabled != "" && removed != "" && e.updated.Spec.DeletionPolicy != v1alpha1.DeletionDelete:
		return []string{"namespaces keep what this change removes from the grants of " + removed + ", because " + disabled}
	case !isPaused && keeps:
		return []string{"until the rollout reaches them, namespaces keep what this change removes from the grants of " +
			removed + because}
	case !isPaused:
		return nil
	}
	warning := fmt.Sprintf("the rollout is paused, so existing namespaces do not get this change "+
		"until you run \"kubectl nstpl rollout resume %s\"", e.updated.Name)
	if rollouts.HasRollback(e.old.Status.Revisions) {
		warning += ", unless it restores the revision that is rolled out completely"
	}
	if added != "" {
		warning += "; they do not get what it adds to the grants of " + added
	}
	switch {
	case keeps:
		warning += "; they keep what it removes from the grants of " + removed + because
	case removed != "":
		warning += "; what it removes from the grants of " + removed + " is taken away at once"
	}
	// Admission checks the permission by the stored selector, so no namespace is selected by an earlier one alone.
	if match.RequiresPermission(e.updated) && e.updated.Spec.DeletionPolicy == v1alpha1.DeletionDelete &&
		!equality.Semantic.DeepEqual(e.old.Spec.Namespaces, e.updated.Spec.Namespaces) {
		warning += "; namespaces that it no longer selects lose all objects of the template at once, " +
			"because the template requires permission"
	}
	return []string{warning}
}

func rbacObjects(declarations []render.Declaration) []render.Declaration {
	return slices.DeleteFunc(declarations, func(d render.Declaration) bool { return d.Group != rbacv1.GroupName })
}

// withoutSame returns the declarations that others do not contain with the same content.
func withoutSame(declarations, others []render.Declaration) []render.Declaration {
	return slices.DeleteFunc(slices.Clone(declarations), func(d render.Declaration) bool {
		return slices.ContainsFunc(others, func(other render.Declaration) bool { return bytes.Equal(d.Raw, other.Raw) })
	})
}

// maxNamedGrants limits the length of a warning.
const maxNamedGrants = 5

func namesOfGrants(declarations []render.Declaration) string {
	var names []string
	for _, d := range declarations {
		if name := strings.ToLower(d.Kind) + "/" + d.Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if more := len(names) - maxNamedGrants; more > 0 {
		names = append(names[:maxNamedGrants], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
