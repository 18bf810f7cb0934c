package match

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Verdict is whether a template selects a namespace, and why.
type Verdict struct {
	Template string `json:"template"`
	Matches  bool   `json:"matches"`
	Reason   string `json:"reason"`
	// Overlays are the names of the template's overlays that apply to the namespace.
	Overlays []string `json:"overlays,omitempty"`
	// IsUnrelated reports whether the namespace lacks the label by which the template selects, or has another name than
	// the template selects. Such a template is rarely one that is meant to select the namespace.
	IsUnrelated bool `json:"-"`
}

// Explain returns whether a template selects a namespace, and why. A namespace that is opted out of the template is not
// selected. Explain does not check whether the namespace is populated at all, which UnpopulatedReason does.
func Explain(template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) Verdict {
	verdict := Verdict{Template: template.Name}
	if verdict.Reason = DisabledReason(template); verdict.Reason != "" {
		return verdict
	}
	selector, err := Selector(template.Spec.Namespaces)
	if err != nil {
		verdict.Reason = err.Error()
		return verdict
	}
	set := labelsOf(ns)
	if failed := unfulfilled(selector, set); failed != nil {
		verdict.Reason, verdict.IsUnrelated = mismatch(*failed, set), isUnrelated(*failed, set)
		return verdict
	}
	verdict.Matches, verdict.Reason = true, matchReason(selector)
	if slices.Contains(OptedOutTemplates(ns), template.Name) {
		verdict.Matches, verdict.Reason = false, OptedOutReason(template.Name)
		return verdict
	}
	verdict.Overlays = Overlays(template, ns)
	return verdict
}

// Overlays returns the names of a template's overlays that apply to a namespace, in the template's order. It omits
// overlays with an invalid selector, which render.Compile rejects.
func Overlays(template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) []string {
	var names []string
	for _, overlay := range template.Spec.Overlays {
		if selector, err := Selector(overlay.Namespaces); err == nil && selector.Matches(labelsOf(ns)) {
			names = append(names, overlay.Name)
		}
	}
	return names
}

func matchReason(selector labels.Selector) string {
	if selector.Empty() {
		return "selects every namespace"
	}
	return "labels match " + selector.String()
}

// unfulfilled returns the first requirement that labels do not fulfill, or nil.
func unfulfilled(selector labels.Selector, set labels.Set) *labels.Requirement {
	requirements, _ := selector.Requirements()
	for i := range requirements {
		if !requirements[i].Matches(set) {
			return &requirements[i]
		}
	}
	return nil
}

// isUnrelated reports whether labels do not fulfill a requirement because they lack its key. All namespaces have the
// label with their name, so another name counts like a missing key.
func isUnrelated(requirement labels.Requirement, set labels.Set) bool {
	return !set.Has(requirement.Key()) || requirement.Key() == corev1.LabelMetadataName
}

// mismatch returns the reason why labels do not fulfill a requirement.
func mismatch(requirement labels.Requirement, set labels.Set) string {
	key := requirement.Key()
	value, has := set[key]
	var quoted []string
	for _, wanted := range requirement.ValuesUnsorted() {
		quoted = append(quoted, strconv.Quote(wanted))
	}
	slices.Sort(quoted)
	wanted := strings.Join(quoted, " or ")
	switch requirement.Operator() {
	case selection.DoesNotExist:
		return fmt.Sprintf("label %s exists, and must not", key)
	case selection.NotIn, selection.NotEquals:
		return fmt.Sprintf("label %s is %q, and must not be %s", key, value, wanted)
	case selection.Exists:
		return fmt.Sprintf("label %s is missing", key)
	}
	if !has {
		return fmt.Sprintf("label %s is missing, not %s", key, wanted)
	}
	return fmt.Sprintf("label %s is %q, not %s", key, value, wanted)
}
