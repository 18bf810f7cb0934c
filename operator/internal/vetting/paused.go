package vetting

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/operator/internal/revisions"
)

// pauseWarnings returns the warnings about an edit of a template that is disabled or paused, or that keeps grants. It
// reads the revisions in force only if one of them may wait: an edit that populates the same needs none.
func (a *Admission) pauseWarnings(ctx context.Context, e edit) ([]string, error) {
	if e.old == nil || e.updated == nil ||
		equality.Semantic.DeepEqual(populatedBy(e.old.Spec), populatedBy(e.updated.Spec)) &&
			match.RequiresPermission(e.old) == match.RequiresPermission(e.updated) {
		return nil, nil
	}
	if warning := e.disabledWarning(); warning != "" {
		return []string{warning}, nil
	}
	settings := e.updated.Spec.Rollout
	if settings == nil || !settings.Paused && !settings.KeepsRevoked() {
		return nil, nil
	}
	inForce, err := a.Outlines.revisions.InForce(ctx, e.old)
	if err != nil {
		return nil, fmt.Errorf("template %s: %w", e.name(), err)
	}
	return e.pauseWarnings(inForce), nil
}

const (
	removes            = "what the newest revision removes from the grants of "
	becauseWithRollout = ", because spec.rollout.revocation is WithRollout"
)

// disabledWarning returns a warning if namespaces keep grants that an edit removes, because the template is disabled,
// or "". Another user may have disabled it.
func (e edit) disabledWarning() string {
	disabled := match.DisabledReason(e.updated)
	if disabled == "" || e.updated.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
		return ""
	}
	_, removed := e.changedGrants(e.old)
	if removed == "" {
		return ""
	}
	return "namespaces keep " + removes + removed + ", because " + disabled
}

// pauseWarnings returns a warning if namespaces keep one of the revisions in force after an edit, because the rollout
// of the template is paused. It names the Roles and RoleBindings that differ in the updated template: earlier edits may
// wait as well. It also warns of those that namespaces keep, paused or not: another user may have chosen that when the
// template declared no grants.
func (e edit) pauseWarnings(inForce []*v1alpha1.NamespaceTemplate) []string {
	if !slices.ContainsFunc(e.old.Status.Revisions, rollout.IsComplete) {
		// Some namespaces have nothing of the template yet.
		nothing := &v1alpha1.NamespaceTemplate{}
		nothing.Spec.Namespaces = e.updated.Spec.Namespaces
		inForce = append(slices.Clip(inForce), nothing)
	}
	if !e.waits(inForce) {
		return nil
	}
	if e.updated.Spec.Rollout.Paused {
		return []string{e.pauseWarning(inForce)}
	}
	if _, removed := e.changedGrants(inForce...); removed != "" {
		return []string{"until the rollout reaches them, namespaces keep " + removes + removed + becauseWithRollout}
	}
	return nil
}

// waits reports whether namespaces may have a revision that populates something else than the updated template. To
// restore the revision that is rolled out completely takes no rollout.
func (e edit) waits(inForce []*v1alpha1.NamespaceTemplate) bool {
	differs := false
	for _, revision := range inForce {
		isComplete := func(other v1alpha1.TemplateRevision) bool {
			return other.Generation == revision.Generation && rollout.IsComplete(other)
		}
		isSame := revisions.PopulateSame(revision.Spec, e.updated.Spec)
		if isSame && slices.ContainsFunc(e.old.Status.Revisions, isComplete) {
			return false
		}
		differs = differs || !isSame && !revisions.PopulateSame(sharing(revision.Spec, e.updated.Spec), e.updated.Spec)
	}
	return differs
}

// pauseWarning returns the warning about a paused rollout.
func (e edit) pauseWarning(inForce []*v1alpha1.NamespaceTemplate) string {
	warning := fmt.Sprintf("the rollout is paused, so existing namespaces do not get the newest revision "+
		"until you run \"kubectl nstpl rollout resume %s\"", e.updated.Name)
	added, removed := e.changedGrants(inForce...)
	if added != "" {
		warning += "; they do not get what it adds to the grants of " + added
	}
	switch {
	case removed != "" && e.updated.Spec.Rollout.KeepsRevoked():
		warning += "; they keep what it removes from the grants of " + removed + becauseWithRollout
	case removed != "":
		warning += "; what it removes from the grants of " + removed + " is taken away at once"
	}
	changesSelector := func(revision *v1alpha1.NamespaceTemplate) bool {
		return !equality.Semantic.DeepEqual(revision.Spec.Namespaces, e.updated.Spec.Namespaces)
	}
	// Admission checks the permission by the stored selector, so no namespace is selected by an earlier one alone.
	if match.RequiresPermission(e.updated) && e.updated.Spec.DeletionPolicy == v1alpha1.DeletionDelete &&
		slices.ContainsFunc(inForce, changesSelector) {
		warning += "; namespaces that it no longer selects lose all objects of the template at once, " +
			"because the template requires permission"
	}
	return warning
}

// changedGrants returns the names of the Roles and RoleBindings that the updated template adds to at least one of some
// revisions, and of those that it removes from one. It returns those that it changes twice, as it may by an overlay.
func (e edit) changedGrants(earlier ...*v1alpha1.NamespaceTemplate) (added, removed string) {
	var more, less []render.Declaration
	after := rbacObjects(e.updated)
	for _, revision := range earlier {
		before := rbacObjects(revision)
		gained, lost := withoutSame(after, before), withoutSame(before, after)
		if !equality.Semantic.DeepEqual(overlaysOfGrants(revision), overlaysOfGrants(e.updated)) {
			gained, lost = after, before
		}
		if e.revokesBySelector(revision) {
			lost = before
		}
		more, less = append(more, gained...), append(less, lost...)
	}
	return namesOfGrants(more), namesOfGrants(less)
}

// revokesBySelector reports whether the updated template may revoke all grants of a revision in namespaces that it does
// not select. One that requires permission loses all its objects there, of which another warning tells.
func (e edit) revokesBySelector(revision *v1alpha1.NamespaceTemplate) bool {
	return e.updated.Spec.DeletionPolicy == v1alpha1.DeletionDelete && !match.RequiresPermission(e.updated) &&
		!equality.Semantic.DeepEqual(revision.Spec.Namespaces, e.updated.Spec.Namespaces)
}

// overlaysOfGrants returns the overlays of a template with those of their patches that may change grants.
func overlaysOfGrants(template *v1alpha1.NamespaceTemplate) []v1alpha1.Overlay {
	var found []v1alpha1.Overlay
	for _, overlay := range template.Spec.Overlays {
		patches := slices.DeleteFunc(slices.Clone(overlay.Patches), func(patch v1alpha1.Patch) bool {
			return !mayPatchGrants(patch)
		})
		if len(patches) > 0 {
			found = append(found, v1alpha1.Overlay{Namespaces: overlay.Namespaces, Patches: patches})
		}
	}
	return found
}

// mayPatchGrants reports whether a patch may change Roles or RoleBindings. The kind of a target is a regular
// expression.
func mayPatchGrants(patch v1alpha1.Patch) bool {
	if patch.Target == nil {
		return strings.Contains(patch.Patch, "Role")
	}
	kind := patch.Target.Kind
	return kind == "" || strings.Contains(kind, "Role") || regexp.QuoteMeta(kind) != kind
}

// rbacObjects returns the Roles and RoleBindings of a template. Raw has sorted keys and no nulls, as in a stored
// revision.
func rbacObjects(template *v1alpha1.NamespaceTemplate) []render.Declaration {
	var found []render.Declaration
	for _, declaration := range render.AllDeclarations(template) {
		if declaration.Group != rbacv1.GroupName {
			continue
		}
		object := map[string]any{}
		if utiljson.Unmarshal(declaration.Raw, &object) == nil {
			render.DropNulls(object)
			declaration.Raw, _ = json.Marshal(object)
		}
		found = append(found, declaration)
	}
	return found
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
