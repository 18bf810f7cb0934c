package attributes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Violation is a change of an attribute that the requester is not allowed to make.
type Violation struct {
	AttributeChange
	// CoveringRules are the rules that cover all values. The requester holds none of their roles.
	CoveringRules []Rule
	// CoveredValues are the values of the rules that do not cover all values.
	CoveredValues []string
}

// Judge returns the violations of a change. For each protected attribute that changes, the requester must hold the role
// of a rule that covers the old and new values. The deletion of an object violates only rules with guardDeletion, and
// nothing once the object has a deletion timestamp. To add an owner counts as a deletion: if the owner does not exist,
// Kubernetes deletes the object. holds reports whether the requester holds a role in the object's namespace.
func (r *Rules) Judge(change Change, holds func(v1alpha1.RoleReference) bool) []Violation {
	violations := r.judgeAll(change, holds)
	if len(violations) == 0 && change.Old != nil && addsOwner(change.Old, change.New) {
		violations = r.judgeAll(Change{Namespace: change.Namespace, Old: change.Old}, holds)
	}
	return violations
}

// addsOwner reports whether an object has an owner that it did not have before.
func addsOwner(old, updated map[string]any) bool {
	known := map[metav1.OwnerReference]bool{}
	for _, owner := range (&unstructured.Unstructured{Object: old}).GetOwnerReferences() {
		known[identity(owner)] = true
	}
	return slices.ContainsFunc((&unstructured.Unstructured{Object: updated}).GetOwnerReferences(),
		func(owner metav1.OwnerReference) bool { return !known[identity(owner)] })
}

// identity returns the fields of a reference that identify the owner.
func identity(owner metav1.OwnerReference) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}

func (r *Rules) judgeAll(change Change, holds func(v1alpha1.RoleReference) bool) []Violation {
	if r.Empty() || change.New == nil && isBeingDeleted(change.Old) {
		return nil
	}
	changes := change.changes(func(attribute Attribute) bool {
		rules := r.Of(attribute, change.Namespace)
		return len(rules) > 0 && (change.New != nil || slices.ContainsFunc(rules, guardsDeletion))
	})
	var violations []Violation
	for _, changed := range changes {
		if violation := judge(changed, r.Of(changed.Attribute, change.Namespace), holds); violation != nil {
			violations = append(violations, *violation)
		}
	}
	return violations
}

func guardsDeletion(rule Rule) bool { return rule.GuardDeletion }

// GuardedDeletions returns the deletions that ClusterProtectedAttributes with guardDeletion guard, in the order of
// attributes: of an object with each protected value and, where a rule protects all values, with the value "any value".
// Values that no rule protects, which no user may remove, are not among them.
func (r *Rules) GuardedDeletions() []Change {
	var changes []Change
	for _, attribute := range slices.SortedFunc(maps.Keys(r.cluster), Attribute.compare) {
		rules := r.cluster[attribute]
		if !slices.ContainsFunc(rules, guardsDeletion) {
			continue
		}
		for _, rule := range rules {
			values := rule.ProtectedValues
			if len(values) == 0 {
				values = []string{"any value"}
			}
			for _, value := range values {
				changes = append(changes, Change{Old: map[string]any{
					"metadata": map[string]any{fields[attribute.Kind]: map[string]any{attribute.Name: value}},
				}})
			}
		}
	}
	return changes
}

func isBeingDeleted(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	return metadata["deletionTimestamp"] != nil
}

func judge(change AttributeChange, rules []Rule, holds func(v1alpha1.RoleReference) bool) *Violation {
	violation := &Violation{AttributeChange: change}
	for _, rule := range rules {
		if !rule.Covers(change.Removed...) || !rule.Covers(change.Set...) {
			violation.CoveredValues = append(violation.CoveredValues, rule.ProtectedValues...)
			continue
		}
		if holds(rule.RoleRef) {
			return nil
		}
		violation.CoveringRules = append(violation.CoveringRules, rule)
	}
	slices.Sort(violation.CoveredValues)
	violation.CoveredValues = slices.Compact(violation.CoveredValues)
	return violation
}

// Describe returns a description of the change for messages, such as: set label env in spec.template of Deployment
// team-a/web to "prod".
func (t AttributeChange) Describe(object string) string {
	where := t.Attribute.String()
	if t.Path != "" {
		where += " in " + t.Path
	}
	where += " of " + object
	switch {
	case len(t.Removed) == 0:
		return fmt.Sprintf("set %s to %s", where, quoteValues(t.Set))
	case len(t.Set) == 0:
		return fmt.Sprintf("remove %s, which is %s", where, quoteValues(t.Removed))
	}
	return fmt.Sprintf("change %s from %s to %s", where, quoteValues(t.Removed), quoteValues(t.Set))
}

// Remedy returns what the requester can do about the violation.
func (v Violation) Remedy() string {
	if len(v.CoveringRules) > 0 {
		roles := make([]string, 0, len(v.CoveringRules))
		for _, rule := range v.CoveringRules {
			roles = append(roles, fmt.Sprintf("%s %s (%s)", rule.RoleRef.Kind, rule.RoleRef.Name, rule))
		}
		return "ask for a binding to " + strings.Join(roles, " or to ")
	}
	changed := slices.Concat(v.Removed, v.Set)
	if !slices.ContainsFunc(changed, func(value string) bool { return !slices.Contains(v.CoveredValues, value) }) {
		return "no single rule covers both values: have a user with the role for the old value remove it, and then one " +
			"with the role for the new value set it"
	}
	return "no rule allows this value for any role: there are rules for " + quoteValues(v.CoveredValues)
}

// quoteValues returns the first few values, quoted and shortened.
func quoteValues(values []string) string {
	const few, long = 5, 64
	texts := make([]string, 0, few+1)
	for i, value := range values {
		if i == few {
			texts = append(texts, fmt.Sprintf("%d more", len(values)-few))
			break
		}
		if len(value) > long {
			value = value[:long] + "…"
		}
		texts = append(texts, strconv.Quote(value))
	}
	return strings.Join(texts, ", ")
}
