package populate

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	patches "nstpl.dev/nstpl/operator/internal/patch"
)

// Admission checks the author of a template for the rights that its RoleBindings grant by the Roles in the same
// template. Such a RoleBinding must therefore never bind a Role with other rules. This file orders the writes in a
// namespace accordingly: RoleBindings lose the subjects that the plan takes away, then Roles are applied, and then a
// RoleBinding, only while its Role is known to be as declared.

var (
	roleKind    = schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}
	bindingKind = schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
)

// roleDelay is the time that a RoleBinding waits after its Role was changed in place. API servers receive Roles and
// RoleBindings from separate watches, so a RoleBinding that is written at once could grant the Role's former rules.
const roleDelay = 250 * time.Millisecond

// boundRole returns the Role that a RoleBinding binds. It reports false for ClusterRoles and for all other objects.
func boundRole(object *unstructured.Unstructured) (ObjectID, bool) {
	if object.GroupVersionKind().GroupKind() != bindingKind {
		return ObjectID{}, false
	}
	kind, _, _ := unstructured.NestedString(object.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
	return ObjectID{GroupKind: roleKind, Name: name}, kind == roleKind.Kind
}

// Withheld is a RoleBinding whose template declares the Role too, while a later template's Role of that name is
// applied. The author of the RoleBinding was not checked for the rules of that Role.
type Withheld struct {
	Object   Object
	Role     ObjectID
	Template string
	// exempt says that the namespace is exempt from the Role of the RoleBinding's template.
	exempt bool
}

// Reason returns why the RoleBinding is withheld, and what to do about it.
func (w Withheld) Reason() string {
	if w.exempt {
		return fmt.Sprintf("the namespace is exempt from %s of template %s, and template %s declares another Role of "+
			"that name, which template %[2]s was not admitted with: make %[4]s exempt, too", w.Role,
			w.Object.Template.Name, w.Template, w.Object.ID())
	}
	return fmt.Sprintf("template %s also declares %s and overrides it, "+
		"but template %s was not admitted with that Role: rename the Role",
		w.Template, w.Role, w.Object.Template.Name)
}

// withhold moves RoleBindings from declared.Objects to declared.Withheld if another template overrides the Role that
// their own template declares, and to declared.Exempt if the namespace is exempt from that Role and has no other.
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
		exempt := declared.exemptRole(object)
		switch {
		case exempt != nil && winner[role] == "":
			declared.exemptWith(*exempt, object)
		case exempt != nil || ok && overridden[Overridden{Object: role, Template: object.Template.Name}]:
			declared.Withheld = append(declared.Withheld,
				Withheld{Object: object, Role: role, Template: winner[role], exempt: exempt != nil})
		default:
			return false
		}
		return true
	})
}

// narrowBindings takes subjects from RoleBindings before the Roles change that these bind: those that no declared
// RoleBinding binds to the Role. The changes of the plan delete or change such RoleBindings too, but only after the
// Roles, so these subjects would have the new rules meanwhile. It stores what it wrote in the changes. It returns why
// some Roles must not change yet.
func (p *pass) narrowBindings(ctx context.Context, plan Plan) map[ObjectID]*Failure {
	changed := changedBindings(plan)
	if len(changed) == 0 {
		return nil
	}
	obstacles := map[ObjectID]*Failure{}
	bindings, err := p.listBindings(ctx, metav1.ListOptions{})
	if err != nil {
		for id := range p.changed {
			obstacles[id] = notRevoked("RoleBindings are narrowed", NewFailure(err, p.namespace))
		}
		return obstacles
	}
	var declared []*unstructured.Unstructured
	for id, object := range p.declared {
		if id.GroupKind == bindingKind {
			declared = append(declared, object.Unstructured)
		}
	}
	var narrowing []Change
	stored := map[string]*unstructured.Unstructured{}
	for i := range bindings {
		binding := &bindings[i]
		role, bindsRole := boundRole(binding)
		change := changed[binding.GetName()]
		// A Role that is only deleted gets no other rules.
		if !bindsRole || !p.changed[role] || p.declared[role] == nil || change == nil ||
			change.Observed.UID != binding.GetUID() || p.remainsInReport(*change, role) {
			continue
		}
		narrowing, stored[change.Name] = append(narrowing, *change), binding
	}
	for _, outcome := range p.each(ctx, narrowing, func(change Change) Outcome {
		return p.narrow(ctx, change, stored[change.Name], declared)
	}) {
		if outcome.Failure != nil {
			role, _ := boundRole(stored[outcome.Name])
			obstacles[role] = notRevoked(fmt.Sprintf("%s, which binds it, is narrowed", outcome.ID()), outcome.Failure)
		}
		changed[outcome.Name].Observed = outcome.Observed
	}
	return obstacles
}

// remainsInReport reports whether one template with driftPolicy Report declares both a RoleBinding and its Role, as
// before. If its change were taken back, the subjects would stay narrowed. Its author may give them the new rules.
func (p *pass) remainsInReport(binding Change, role ObjectID) bool {
	if binding.Declared == nil || binding.Declared.Template.Spec.DriftPolicy != v1alpha1.DriftReport {
		return false
	}
	template := binding.Declared.Template.Name
	return labelOf(binding.Observed) == template && p.declared[role].Template.Name == template
}

// changedBindings returns the changes of existing RoleBindings by their names, if a Role changes, too.
func changedBindings(plan Plan) map[string]*Change {
	bindings, changesRole := map[string]*Change{}, false
	for i := range plan.Changes {
		change := &plan.Changes[i]
		isApplied := change.Action == Create || change.Action == Configure
		switch kind := change.Kind.GroupKind(); {
		case kind == roleKind && isApplied:
			changesRole = true
		case kind == bindingKind && change.Observed != nil && (change.Deletes() || change.Action == Configure):
			bindings[change.Name] = change
		}
	}
	if !changesRole {
		return nil
	}
	return bindings
}

// narrow takes subjects from a RoleBinding as it is stored.
func (p *pass) narrow(
	ctx context.Context, change Change, stored *unstructured.Unstructured, declared []*unstructured.Unstructured,
) Outcome {
	outcome := Outcome{Change: change}
	narrowed, err := narrowBinding(stored, declared)
	if err == nil && !reflect.DeepEqual(narrowed["subjects"], stored.Object["subjects"]) {
		var written *metav1.PartialObjectMetadata
		written, err = p.setSubjects(ctx, change, stored, narrowed["subjects"])
		outcome.Observed = cmp.Or(written, change.Observed)
	}
	if err != nil && !isGone(err) {
		outcome.Failure = NewFailure(err, p.namespace)
	}
	return outcome
}

// setSubjects sets the subjects of a RoleBinding while they are as stored, so that it adds none that another leader has
// removed meanwhile. If another client changes them meanwhile, it removes all: otherwise that client could keep some.
func (p *pass) setSubjects(
	ctx context.Context, change Change, stored *unstructured.Unstructured, subjects any,
) (*metav1.PartialObjectMetadata, error) {
	objects, err := p.resource(ctx, change.Kind, p.namespace)
	if err != nil {
		return nil, err
	}
	write := patches.Tested{}.Test("/metadata/uid", stored.GetUID()).Test("/subjects", stored.Object["subjects"])
	if subjects == nil {
		write = write.Remove("/subjects")
	} else {
		write = write.Set("/subjects", subjects)
	}
	data, err := write.Data(nil)
	if err != nil {
		return nil, err
	}
	written, err := objects.Patch(ctx, change.Name, write.Type(), data,
		metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	if patches.IsStale(err) {
		return empty(ctx, objects, change)
	}
	return written, err
}

// notRevoked returns why a Role must not change before something else is done, which failed.
func notRevoked(until string, cause *Failure) *Failure {
	return failuref(ReasonNotRevoked, "waits until %s: %w", until, cause)
}

func labelOf(object *metav1.PartialObjectMetadata) string {
	return object.Labels[v1alpha1.TemplateNameLabel]
}

// roles holds the declared Roles of a plan, and the outcomes of the writes of these.
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

func (r roles) addOutcomes(outcomes []Outcome) {
	for _, outcome := range outcomes {
		if outcome.Kind.GroupKind() == roleKind {
			r.outcomes[outcome.ID()] = outcome
		}
	}
}

// boundBy returns the declared Role that a change's RoleBinding binds. It returns false if no template of the namespace
// declares that Role. To declare such a RoleBinding, the author needed the right to bind the Role, whatever its rules.
func (r roles) boundBy(change Change) (Change, bool) {
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

// mustWait reports whether a RoleBinding has to wait for the outcome of its Role in this pass.
func (r roles) mustWait(change Change) bool {
	role, ok := r.boundBy(change)
	return ok && role.Action != Unchanged
}

// obstacle returns why a RoleBinding that waited for its Role must not be applied in this pass, or nil.
func (r roles) obstacle(change Change) *Failure {
	role, ok := r.boundBy(change)
	if !ok {
		return nil
	}
	outcome, tried := r.outcomes[role.ID()]
	switch {
	case tried && outcome.Failure == nil && outcome.Created:
		return nil
	case tried && outcome.Failure == nil:
		return &Failure{
			Reason: ReasonWaitsForRole, RetryAfter: roleDelay,
			err: fmt.Errorf("waits until the change of %s is in force", role.ID()),
		}
	case tried:
		return failuref(ReasonRoleNotAsDeclared, "not applied, because %s is not as declared: %w", role.ID(),
			outcome.Failure)
	}
	return failuref(ReasonRoleNotAsDeclared, "not applied, because %s is not as declared: %s", role.ID(), role.Reason)
}

// unsafeBindings returns the existing RoleBindings that must be deleted, because their Role differs from its
// declaration and cannot be corrected. A Role that still has the rules of an earlier declaration is safe, and after a
// transient failure the next pass corrects the Role.
func (r roles) unsafeBindings(plan Plan) []Change {
	var all []Change
	for _, change := range plan.Changes {
		role, ok := r.boundBy(change)
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

// ownsRules reports whether the rules of a Role are those that nstpl applied last.
func ownsRules(role *metav1.PartialObjectMetadata) bool {
	if role == nil || ownEntry(role) == nil {
		return false
	}
	lost, err := lostFields(map[string]any{"rules": []any{}}, ownEntry(role))
	return err == nil && len(lost) == 0
}

// isRBAC reports whether a kind is Role or RoleBinding. These grant rights as long as they exist, even while they are
// being deleted.
func isRBAC(kind schema.GroupKind) bool { return kind == roleKind || kind == bindingKind }

// hasFinalizers reports whether an object continues to exist after its deletion, until its finalizers are removed.
func hasFinalizers(object *metav1.PartialObjectMetadata) bool {
	return len(object.Finalizers) > 0
}
