package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// selects returns a CEL expression for whether a label selector selects an object. Both are CEL expressions themselves.
// The result is that of metav1.LabelSelectorAsSelector for every valid selector.
func selects(selector, object string) string {
	return strings.NewReplacer("SELECTOR", selector, "OBJECT", object).Replace(
		`SELECTOR.?matchLabels.orValue({}).all(k,
  OBJECT.metadata.?labels[?k] == optional.of(SELECTOR.matchLabels[k])) &&
SELECTOR.?matchExpressions.orValue([]).all(e,
  e.operator == 'In' ?
    OBJECT.metadata.?labels[?e.key].hasValue() && OBJECT.metadata.labels[e.key] in e.?values.orValue([]) :
  e.operator == 'NotIn' ?
    !OBJECT.metadata.?labels[?e.key].hasValue() || !(OBJECT.metadata.labels[e.key] in e.?values.orValue([])) :
  e.operator == 'Exists' ? OBJECT.metadata.?labels[?e.key].hasValue() :
  e.operator == 'DoesNotExist' && !OBJECT.metadata.?labels[?e.key].hasValue())`)
}

// systemNamespaces returns a CEL list of the namespaces that are never populated. match.IsSystemNamespace lists the
// same.
func systemNamespaces() string {
	return fmt.Sprintf("['%s', '%s', '%s', '%s', '%s']", metav1.NamespaceSystem, metav1.NamespacePublic,
		corev1.NamespaceNodeLease, v1alpha1.OperatorNamespace, v1alpha1.TrialNamespace)
}

// pendingInitializers returns a CEL expression for the list of initializers in the annotation of the namespace that a
// request creates. A longer annotation than any that the operator needs counts as empty, which bounds the cost.
func pendingInitializers() string {
	return `[object.metadata.?annotations[?'policy/namespace-initializers-pending'].orValue('')]
.filter(list, size(list) <= 8192)
.map(list, list.split(',')).flatten().filter(name, name != '')`
}

// isListed returns a CEL expression for whether the ConfigMap nstpl-auto-opt-out, which is the parameter of the policy,
// lists the requesting user or one of the user's groups.
func isListed() string {
	return `params.?data.users.orValue('').split('\n').exists(user,
  user.trim() != '' && user.trim() == request.userInfo.username) ||
params.?data.groups.orValue('').split('\n').exists(group,
  group.trim() != '' && group.trim() in request.userInfo.?groups.orValue([]))`
}

// operatorEntries returns a CEL expression for the list of the operator's managedFields entries of an object. The API
// server keeps at most one.
func operatorEntries(object string) string {
	return object + `.metadata.?managedFields.orValue([]).filter(m,
  m.?manager.orValue('') == 'nstpl' && m.?operation.orValue('') == 'Apply' && m.?subresource.orValue('') == '')`
}

// fieldLevels is how many levels of FieldsV1 onlyRemovesFields compares. No type that the API server has a schema for
// is nested as deeply.
const fieldLevels = 20

// onlyRemovesFields returns a CEL expression for whether one FieldsV1 lacks fields of another and has no others. CEL
// has no recursion, so each line compares the nodes of one level: pN is a pair of nodes that differ, the new one and
// the old one. A node without children stands for everything below it, so a node that becomes empty has gained fields.
func onlyRemovesFields(oldFields, newFields string) string {
	var expression strings.Builder
	fmt.Fprintf(&expression, "[[%s, %s]].all(\n", newFields, oldFields)
	for level := range fieldLevels {
		text := "p0, size(p0[0]) > 0 && p0[0].all(k0, k0 in p0[1] && "
		if level < fieldLevels-1 {
			text += "(p0[0][k0] == p0[1][k0] || [[p0[0][k0], p0[1][k0]]].all(\n"
		} else {
			text += "p0[0][k0] == p0[1][k0]"
		}
		number := strings.NewReplacer("p0", fmt.Sprint("p", level), "k0", fmt.Sprint("k", level))
		expression.WriteString(number.Replace(text))
	}
	// Two parentheses end the calls of all in each level, and one ends the choice in each level but the last.
	expression.WriteString(strings.Repeat(")", 3*fieldLevels-1))
	return expression.String()
}
