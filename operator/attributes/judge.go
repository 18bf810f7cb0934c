package attributes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Violation is an attribute that a requester may not touch as they want to.
type Violation struct {
	Touch
	// Would are the rules that open all the values, whose roles the requester does not hold.
	Would []Rule
	// Opened are the values that some rule opens, when none opens all of these.
	Opened []string
}

// Judge returns every attribute that stands in the way of a change. For each protected attribute that the change
// touches, the requester must hold the role of one rule that opens the values, old and new. An attribute that stays as
// it is never stands in the way, and when an object is deleted only those do whose rules guard the deletion; what is
// being deleted already is touched no more. holds tells whether the requester holds a role in the object's namespace.
func (r *Rules) Judge(change Change, holds func(v1alpha1.RoleReference) bool) []Violation {
	if r.Empty() || change.New == nil && dying(change.Old) {
		return nil
	}
	touches := change.touches(func(attribute Attribute) bool {
		rules := r.Of(attribute, change.Namespace)
		return len(rules) > 0 && (change.New != nil || slices.ContainsFunc(rules, guardsDeletion))
	})
	var violations []Violation
	for _, touch := range touches {
		if violation := judge(touch, r.Of(touch.Attribute, change.Namespace), holds); violation != nil {
			violations = append(violations, *violation)
		}
	}
	return violations
}

func guardsDeletion(rule Rule) bool { return rule.GuardDeletion }

func dying(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	return metadata["deletionTimestamp"] != nil
}

func judge(touch Touch, rules []Rule, holds func(v1alpha1.RoleReference) bool) *Violation {
	violation := &Violation{Touch: touch}
	for _, rule := range rules {
		if !rule.Opens(touch.Removed...) || !rule.Opens(touch.Set...) {
			violation.Opened = append(violation.Opened, rule.ProtectedValues...)
			continue
		}
		if holds(rule.RoleRef) {
			return nil
		}
		violation.Would = append(violation.Would, rule)
	}
	slices.Sort(violation.Opened)
	violation.Opened = slices.Compact(violation.Opened)
	return violation
}

// What says what is done to which attribute of an object: set label env in spec.template of Deployment team-a/web to
// "prod".
func (t Touch) What(object string) string {
	where := t.Attribute.String()
	if t.Place != "" {
		where += " in " + t.Place
	}
	where += " of " + object
	switch {
	case len(t.Removed) == 0:
		return fmt.Sprintf("set %s to %s", where, quote(t.Set))
	case len(t.Set) == 0:
		return fmt.Sprintf("remove %s, which is %s", where, quote(t.Removed))
	}
	return fmt.Sprintf("change %s from %s to %s", where, quote(t.Removed), quote(t.Set))
}

// Remedy says what would make it pass.
func (v Violation) Remedy() string {
	if len(v.Would) > 0 {
		roles := make([]string, 0, len(v.Would))
		for _, rule := range v.Would {
			roles = append(roles, fmt.Sprintf("%s %s (%s)", rule.RoleRef.Kind, rule.RoleRef.Name, rule))
		}
		return "ask for a binding to " + strings.Join(roles, " or to ")
	}
	touched := slices.Concat(v.Removed, v.Set)
	if !slices.ContainsFunc(touched, func(value string) bool { return !slices.Contains(v.Opened, value) }) {
		return "no rule opens these values together: remove the one first, and then set the other"
	}
	return "no rule opens this value to anybody: there are rules for " + quote(v.Opened)
}

// quote names the first few values, each cut to what a message has room for.
func quote(values []string) string {
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
