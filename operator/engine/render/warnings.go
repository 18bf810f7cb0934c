package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Warnings returns what a template declares that fails in some namespaces only: a name may be too long in namespaces
// with long names, and two names with tokens may become equal. It also returns text that resembles a token, and patches
// and images of overlays that change nothing.
func Warnings(template *v1alpha1.NamespaceTemplate) []string {
	warnings := append(nearTokens(template), metadataWarnings(template)...)
	var seen []ObjectID
	add := func(part Part, object *unstructured.Unstructured) {
		id := IDOf(object)
		for _, other := range seen {
			if id.GroupKind == other.GroupKind && id.Name != other.Name && MayCoincide(id.Name, other.Name) {
				warnings = append(warnings,
					fmt.Sprintf("%s: %s and %s may be the same object in some namespaces, "+
						"where the template then fails: give one of them a prefix", part, other, id))
			}
		}
		seen = append(seen, id)
		warnings = append(warnings, valueWarnings(part, object)...)
	}
	var objects []*unstructured.Unstructured
	for i, raw := range template.Spec.Templates {
		if object, problems := parseObject(raw); len(problems) == 0 {
			add(Part{Objects, i}, object)
			objects = append(objects, object)
		}
	}
	if len(objects) == len(template.Spec.Templates) {
		warnings = append(warnings, overlayWarnings(template, objects)...)
	}
	for i := range template.Spec.Sources {
		if object, problems := parseSource(&template.Spec.Sources[i]); len(problems) == 0 {
			add(Part{Sources, i}, object)
		}
	}
	slices.Sort(warnings)
	return warnings
}

// valueWarnings returns where an object has the name of the creator, or a value of the namespace, in places in which
// not all of them are valid.
func valueWarnings(part Part, object *unstructured.Unstructured) []string {
	id := IDOf(object)
	var warnings []string
	if containsToken(id.Name, CreatorToken) && len(nameReasons(id.GroupKind, mailValues.expand(id.Name))) == 0 {
		warnings = append(warnings,
			fmt.Sprintf("%s: %s: user names with / or %% are not valid in "+
				"metadata.name: the object is missing in the namespaces of such users", part, id))
	}
	tooLong := func(path string, length int) {
		if length >= 0 {
			warnings = append(warnings, fmt.Sprintf("%s: %s: %s is too long in namespaces whose names have more than %d "+
				"characters: the object is missing there, and they are not populated", part, id, path, length))
		}
	}
	reasons := func(name string) []string { return nameReasons(id.GroupKind, name) }
	tooLong("metadata.name", longestFitting(id.Name, reasons))
	if containsValue(id.Name) {
		warnings = append(warnings,
			fmt.Sprintf("%s: %s: labels and annotations may have values that are not valid in "+
				"metadata.name: the object is missing in such namespaces", part, id))
	}
	for key, value := range object.GetLabels() {
		if strings.Contains(value, annotationToken) && containsValue(value) {
			warnings = append(warnings,
				fmt.Sprintf("%s: %s: annotations may have values that are not valid in labels: the "+
					"object is missing in such namespaces: see metadata.labels[%s]", part, id, key))
		}
		tooLong("metadata.labels["+key+"]", longestFitting(value, validation.IsValidLabelValue))
	}
	return warnings
}

// MayCoincide reports whether two names may be equal for some values of the tokens in them. It may be true for names
// that are never equal, and is never false for names that can be.
func MayCoincide(a, b string) bool {
	beforeA, afterA, tokensA := splitAtTokens(a)
	beforeB, afterB, tokensB := splitAtTokens(b)
	switch {
	case tokensA == 0 && tokensB == 0:
		return a == b
	case tokensA == 0:
		return MayCoincide(b, a)
	case tokensB == 0:
		return len(beforeB) >= len(beforeA)+len(afterA) && strings.HasPrefix(beforeB, beforeA) &&
			strings.HasSuffix(beforeB, afterA)
	}
	return (strings.HasPrefix(beforeA, beforeB) || strings.HasPrefix(beforeB, beforeA)) &&
		(strings.HasSuffix(afterA, afterB) || strings.HasSuffix(afterB, afterA))
}

// splitAtTokens returns the text before the first token of a name, the text after the last, and the number of tokens.
func splitAtTokens(name string) (before, after string, tokens int) {
	scan(name, func(text string) {
		if tokens == 0 {
			before += text
		}
		after += text
	}, func(string) {
		tokens++
		after = ""
	})
	return before, after, tokens
}
