package populate

import (
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A template's author is judged by the Roles that stand beside a RoleBinding, so a RoleBinding must never bind anything
// else. This file orders the writes of a namespace accordingly: Roles first, and a RoleBinding only while its Role is
// known to be as declared.

var (
	roleKind    = schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}
	bindingKind = schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
)

// roleSettles is how long a RoleBinding waits after its Role was changed in place. API servers learn of the Role and of
// the RoleBinding by separate watches, so a RoleBinding written at once could meet the Role as it was before.
const roleSettles = 250 * time.Millisecond

// boundRole returns the Role that a RoleBinding binds. It reports false for ClusterRoles and for all other objects.
func boundRole(object *unstructured.Unstructured) (ObjectID, bool) {
	if object.GroupVersionKind().GroupKind() != bindingKind {
		return ObjectID{}, false
	}
	kind, _, _ := unstructured.NestedString(object.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
	return ObjectID{roleKind, name}, kind == roleKind.Kind
}

// Withheld is a RoleBinding whose template declares the Role too, while a later template's Role of that name is
// applied. The author of the RoleBinding was not judged by that Role.
type Withheld struct {
	Object   Object
	Role     ObjectID
	Template string
}

// Reason says why the RoleBinding is withheld, and what to do.
func (w Withheld) Reason() string {
	return fmt.Sprintf("template %s declares %s too and comes later, and template %s was not admitted with that Role: rename the Role",
		w.Template, w.Role, w.Object.Template.Name)
}

// withhold takes the RoleBindings out of declared whose own Role is overridden. It adds them to declared.Withheld.
func withhold(declared *Declared) {
	overridden := map[Overridden]bool{}
	for _, o := range declared.Overridden {
		overridden[Overridden{Object: o.Object, Template: o.Template}] = true
	}
	winner := map[ObjectID]string{}
	for _, object := range declared.Objects {
		winner[object.ID()] = object.Template.Name
	}
	declared.Objects = slices.DeleteFunc(declared.Objects, func(object Object) bool {
		role, ok := boundRole(object.Unstructured)
		if !ok || !overridden[Overridden{Object: role, Template: object.Template.Name}] {
			return false
		}
		declared.Withheld = append(declared.Withheld, Withheld{Object: object, Role: role, Template: winner[role]})
		return true
	})
}

// guardRoles sees to it that a Role which passes from one template to another is bound by no RoleBinding of the former:
// metadata does not say what a RoleBinding binds, so each of them may bind it. Those that are pruned anyway go before
// any Role changes, as do those that are withheld. A Role is not taken over while one stays that no template declares.
func guardRoles(plan *Plan) {
	withheld := map[ObjectID]bool{}
	for _, w := range plan.Withheld {
		withheld[w.Object.ID()] = true
	}
	former := map[string]bool{}
	left := map[string]ObjectID{}
	for _, change := range plan.Changes {
		if before, passes := formerTemplate(change); passes {
			former[before] = true
		}
		if change.Action == LeaveAlone && change.Declared == nil && change.Kind.GroupKind() == bindingKind &&
			change.Observed != nil && Ours(change.Observed) {
			left[labelOf(change.Observed)] = change.ID()
		}
	}
	for i := range plan.Changes {
		change := &plan.Changes[i]
		if change.Action == Prune && change.Kind.GroupKind() == bindingKind {
			change.Revoked = withheld[change.ID()] || former[labelOf(change.Observed)]
		}
		before, passes := formerTemplate(*change)
		if binding, stays := left[before]; passes && stays {
			change.Action = Unknown
			change.Err = fmt.Errorf("was populated by template %s, and %s of that template is left in the namespace and may bind it: "+
				"delete the RoleBinding, or rename the Role", before, binding)
			change.Reason = change.Err.Error()
		}
	}
}

// formerTemplate returns the template that populated a declared Role before, if that is another one.
func formerTemplate(change Change) (string, bool) {
	if change.Declared == nil || change.Kind.GroupKind() != roleKind || change.Observed == nil {
		return "", false
	}
	before := labelOf(change.Observed)
	return before, before != "" && before != change.Template
}

func labelOf(object *metav1.PartialObjectMetadata) string {
	return object.Labels[v1alpha1.TemplateNameLabel]
}

// roles knows the Roles of a plan and what became of them.
type roles struct {
	changes  map[ObjectID]Change
	outcomes map[ObjectID]Outcome
}

func rolesOf(plan Plan) roles {
	r := roles{changes: map[ObjectID]Change{}, outcomes: map[ObjectID]Outcome{}}
	for _, change := range plan.Changes {
		if change.Declared != nil && change.Kind.GroupKind() == roleKind {
			r.changes[change.ID()] = change
		}
	}
	return r
}

// record notes what became of Roles.
func (r roles) record(outcomes []Outcome) {
	for _, outcome := range outcomes {
		if outcome.Kind.GroupKind() == roleKind {
			r.outcomes[outcome.ID()] = outcome
		}
	}
}

// of returns the declared Role that a change's RoleBinding binds. It reports false if the templates of the namespace do
// not declare it: the author of such a RoleBinding needed the right to bind whatever that Role grants.
func (r roles) of(change Change) (Change, bool) {
	if change.Declared == nil {
		return Change{}, false
	}
	role, ok := boundRole(change.Declared.Unstructured)
	if !ok {
		return Change{}, false
	}
	declared, ok := r.changes[role]
	return declared, ok
}

// waits reports whether a RoleBinding has to wait until it is known what becomes of its Role in this pass.
func (r roles) waits(change Change) bool {
	role, ok := r.of(change)
	return ok && role.Action != Unchanged
}

// obstacle returns why a RoleBinding that waited can't be applied in this pass, or nil.
func (r roles) obstacle(change Change) *Failure {
	role, ok := r.of(change)
	if !ok {
		return nil
	}
	outcome, tried := r.outcomes[role.ID()]
	switch {
	case tried && outcome.Failure == nil && outcome.Created:
		return nil
	case tried && outcome.Failure == nil:
		return &Failure{
			Reason: ReasonWaitsForRole, RetryAfter: roleSettles,
			err: fmt.Errorf("waits until the change of %s is in force", role.ID()),
		}
	case tried:
		return &Failure{
			Reason: ReasonRoleNotAsDeclared,
			err:    fmt.Errorf("not applied, because %s is not as declared: %w", role.ID(), outcome.Failure),
		}
	}
	return &Failure{
		Reason: ReasonRoleNotAsDeclared,
		err:    fmt.Errorf("not applied, because %s is not as declared: %s", role.ID(), role.Reason),
	}
}

// unsafeBindings returns the RoleBindings that exist and must go, because their Role differs from the declaration and cannot
// be put right. A Role that still is as an earlier declaration had it is no danger, and neither is a failure that
// passes.
func (r roles) unsafeBindings(plan Plan) []Change {
	var all []Change
	for _, change := range plan.Changes {
		role, ok := r.of(change)
		if !ok || change.Observed == nil || !Ours(change.Observed) {
			continue
		}
		outcome, tried := r.outcomes[role.ID()]
		if !tried || outcome.Failure == nil || outcome.Failure.Transient() {
			continue
		}
		if role.Drifted || !ownsRules(role.Observed) {
			all = append(all, change)
		}
	}
	return all
}

// ownsRules reports whether the rules of a Role are those that this project applied last.
func ownsRules(role *metav1.PartialObjectMetadata) bool {
	if role == nil || ownEntry(role) == nil {
		return false
	}
	lost, err := lostFields(map[string]any{"rules": []any{}}, ownEntry(role))
	return err == nil && len(lost) == 0
}

// isRBAC reports whether objects of a kind grant rights as long as they exist, even while they are being deleted.
func isRBAC(kind schema.GroupKind) bool { return kind == roleKind || kind == bindingKind }

// held reports whether finalizers keep an object from being deleted.
func hasFinalizers(object *metav1.PartialObjectMetadata) bool {
	return len(object.Finalizers) > 0
}
