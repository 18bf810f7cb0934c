package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
)

// hasRule returns a CEL expression for whether a rule in the ConfigMap nstpl-selectors, which is the parameter of the
// policy, selects an object with the given labels, and condition holds for the rule r. Package selectors
// describes the rules. The expression is evaluated for every namespace, and most have no rule, so it looks for a label
// before it splits a text. The guard of namespaces denies more labels than those for which it looks.
func hasRule(labels, condition string) string {
	rule := strings.NewReplacer("SELECTS", selects("r", "labels"), "CONDITION", condition).Replace(
		`[text.split('\n', 2)[0]].exists(r,
    r != '' && CONDITION &&
    SELECTS)`)
	return strings.NewReplacer("LABELS", labels, "RULE", rule, "MAX", fmt.Sprint(2*maxLabels)).Replace(
		`has(params.data) && [LABELS].exists(labels, labels.size() <= MAX && (
  labels.exists(k, ['label.' + labels[k].substring(labels[k] == '' ? 0 : size(labels[k]) - 1)].exists(key,
    key in params.data && ['\n' + k + '=' + labels[k] + ' '].exists(begin,
    params.data[key].contains(begin) && params.data[key].split(begin).exists(text, RULE)))) ||
  'any' in params.data && labels.exists(k, ['\n' + k + ' '].exists(begin,
    params.data.any.contains(begin) && params.data.any.split(begin).exists(text, RULE))) ||
  'all' in params.data && params.data.all.split('\n').exists(text, RULE)))`)
}

// initializes returns a CEL expression for whether a new namespace waits because of rule r, which selects it: the rule
// is one of an initializer, or of a template that is not disabled in a namespace that is not opted out.
func initializes() string {
	return `(r.startsWith('i:') ||
    (r.startsWith('t:') || r.startsWith('g:')) && !variables.optedOut)`
}

// guards returns a CEL expression for whether r is a rule of a template that requires permission.
func guards() string {
	return "(r.startsWith('g:') || r.startsWith('d:'))"
}

// maxCheckedTemplates is the number of templates up to which permission for each of them is checked in a request. The
// API server limits the cost of a policy to 10,000,000, and counts a check as 350,000.
const maxCheckedTemplates = 20

// maxLabels is how many labels a user may give a namespace. Those who may patch all templates may give twice as many.
const maxLabels = 256

// checkedTemplates returns the indices of the templates that each validation checks.
func checkedTemplates() [][2]int {
	var pairs [][2]int
	for i := 0; i < maxCheckedTemplates; i += 2 {
		pairs = append(pairs, [2]int{i, i + 1})
	}
	return pairs
}

// selectingRules returns a CEL expression for the list of rules for which condition holds and that select an object
// with the given labels. Both are CEL expressions, and condition is about the rule r.
func selectingRules(labels, condition string) string {
	return strings.NewReplacer("LISTS", ruleLists(labels), "SELECTS", selects("r", labels), "CONDITION",
		condition).Replace(
		`(LISTS).map(list, list.map(text, text.split('\n', 2)[0]).filter(r,
  r != '' && CONDITION &&
  SELECTS)).filter(list, size(list) > 0)`)
}

// ruleLists returns a CEL expression for lists of texts. The first line of each text is empty or a rule that may select
// an object with the given labels.
func ruleLists(labels string) string {
	return strings.ReplaceAll(`LABELS.map(k,
    params.?data[?'label.' + LABELS[k].substring(LABELS[k] == '' ? 0 : size(LABELS[k]) - 1)].orValue('')
    .split('\n' + k + '=' + LABELS[k] + ' ')) +
  LABELS.map(k, params.?data.any.orValue('').split('\n' + k + ' ')) +
  [params.?data.all.orValue('').split('\n')]`, "LABELS", labels)
}

// selects returns a CEL expression for whether a rule selects an object with the given labels. Its first word contains
// a colon, and each of the others is a requirement.
func selects(rule, labels string) string {
	return strings.NewReplacer("RULE", rule, "LABELS", labels).Replace(`RULE.split(' ').all(word,
      word.contains(':') ||
      (word.startsWith('!') ? !(word.substring(1) in LABELS) :
      word.contains('~') ? !(word.split('~')[0] in LABELS &&
        LABELS[word.split('~')[0]] in word.split('~')[1].split('|')) :
      word.contains('=') ? word.split('=')[0] in LABELS &&
        LABELS[word.split('=')[0]] in word.split('=')[1].split('|') :
      word in LABELS))`)
}

// systemNamespaces returns a CEL list of the namespaces that are never populated. match.IsSystemNamespace lists the
// same.
func systemNamespaces() string {
	return fmt.Sprintf("['%s', '%s', '%s', '%s', '%s']", metav1.NamespaceSystem, metav1.NamespacePublic,
		corev1.NamespaceNodeLease, v1alpha1.OperatorNamespace, v1alpha1.TrialNamespace)
}

// pendingInitializers returns a CEL expression for the list of initializers in the annotation of the namespace that a
// request creates. A list beyond the limits of initialize.Requested counts as empty. This bounds the cost and the time.
func pendingInitializers() string {
	return fmt.Sprintf(`[object.metadata.?annotations[?'policy/namespace-initializers-pending'].orValue('')]
.filter(list, size(list) <= %d && size(list.split(',')) <= %d)
.map(list, list.split(',')).flatten().filter(name, name != '')`,
		initialize.MaxRequestedCharacters, initialize.MaxRequestedEntries)
}

// isListed returns a CEL expression for whether the copy of the lists in nstpl-auto-opt-out that is in the ConfigMap
// nstpl-selectors has the requesting user or one of the user's groups. Each name is a line of its own. A name that
// contains an end of line is not listed.
func isListed() string {
	return `params.?data.users.orValue('').contains('\n' + request.userInfo.username + '\n') &&
  !request.userInfo.username.contains('\n') ||
request.userInfo.?groups.orValue([]).exists(group, !group.contains('\n') &&
  params.?data.groups.orValue('').contains('\n' + group + '\n'))`
}

// operatorEntries returns a CEL expression for the list of the operator's managedFields entries of an object. The API
// server keeps at most one.
func operatorEntries(object string) string {
	return matching(object+".metadata.?managedFields.orValue([])",
		`m.?manager.orValue('') == 'nstpl' && m.?operation.orValue('') == 'Apply' && m.?subresource.orValue('') == ''`)
}

// matching returns a CEL expression for those items m of a list for which condition holds. A user may have written a
// list of any length, and the API server counts costs in a time that grows with the square of what a loop loops over.
// So the loop is one over parts of the list.
func matching(list, condition string) string {
	return strings.NewReplacer("LIST", list, "CONDITION", condition).Replace(
		`[LIST].map(items, lists.range((items.size() + 127) / 128).map(i,
  items.slice(i * 128, i * 128 + 128 < items.size() ? i * 128 + 128 : items.size()).filter(m,
  CONDITION)).flatten())[0]`)
}

// namespaceRecords returns a CEL list of the annotations of namespaces that only the operator and nstpl-sync write.
func namespaceRecords() string {
	return "['" + strings.Join([]string{
		v1alpha1.UIDRangeAnnotation, v1alpha1.SupplementalGroupsAnnotation, v1alpha1.MCSAnnotation,
		v1alpha1.NextAccountUIDAnnotation, v1alpha1.AccountUIDAnnotation,
		v1alpha1.ExistingAnnotation, v1alpha1.NamespaceMetadataAnnotation, v1alpha1.HashAnnotation,
		v1alpha1.TreeMetadataAnnotation,
	}, "', '") + "']"
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
