package render

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/schema"
)

// reference is text that may be meant as a token: $(NAME), $(NAME, ${NAME} or $NAME.
var reference = regexp.MustCompile(`\$+(?:\(([A-Za-z_]+)\)?|\{([A-Za-z_]+)\}?|([A-Za-z_]+))`)

// keyReference is text that may be meant as the token of a label or an annotation: $(NAME:KEY).
var keyReference = regexp.MustCompile(`\$+\(([A-Za-z_]+):([^()\s]*)\)?`)

// nearTokens returns warnings about text that resembles a token but is not replaced.
func nearTokens(template *v1alpha1.NamespaceTemplate) []string {
	var warnings []string
	warn := func(at, text string, variables map[string]bool) {
		for _, found := range reference.FindAllStringSubmatch(text, -1) {
			if token := meantToken(found, variables); token != "" {
				warnings = append(warnings, fmt.Sprintf("%s: %s is not a token: did you mean %s?", at, found[0], token))
			}
		}
		for _, found := range keyReference.FindAllStringSubmatch(text, -1) {
			if token := meantKey(found); token != "" {
				warnings = append(warnings, fmt.Sprintf("%s: %s is not a token: did you mean %s?", at, found[0], token))
			}
		}
	}
	for i, raw := range template.Spec.Templates {
		var object map[string]any
		if utiljson.Unmarshal(raw.Raw, &object) == nil {
			variables := map[string]bool{}
			for inside := range within(object) {
				fields, _ := inside.(map[string]any)
				if name, ok := fields["name"].(string); ok && (fields["value"] != nil || fields["valueFrom"] != nil) {
					variables[name] = true
				}
			}
			visitStrings(Part{Objects, i}.String(), object, func(at, text string) { warn(at, text, variables) })
		}
	}
	for i := range template.Spec.Sources {
		source, part := &template.Spec.Sources[i], Part{Sources, i}
		warn(part.String()+".as", source.As, nil)
		for key, value := range source.Labels {
			warn(fmt.Sprintf("%s.labels[%s]", part, key), value, nil)
		}
		for key, value := range source.Annotations {
			warn(fmt.Sprintf("%s.annotations[%s]", part, key), value, nil)
		}
	}
	for i, overlay := range template.Spec.Overlays {
		for j, patch := range overlay.Patches {
			warn(fmt.Sprintf("%s.patches[%d]", Part{Overlays, i}, j), patch.Patch, nil)
		}
		for field, values := range map[string]map[string]string{
			"labels": overlay.Labels, "annotations": overlay.Annotations,
		} {
			for key, value := range values {
				warn(fmt.Sprintf("%s.%s[%s]", Part{Overlays, i}, field, key), value, nil)
			}
		}
	}
	return warnings
}

// meantToken returns the token that a reference resembles, or "". Variables are the environment variables that the
// object defines.
func meantToken(reference []string, variables map[string]bool) string {
	text := strings.TrimLeft(reference[0], "$")
	if len(reference[0])-len(text) > 1 {
		return "" // escaped
	}
	name := reference[1] + reference[2] + reference[3]
	for _, token := range []string{NamespaceToken, CreatorToken} {
		wanted := strings.Trim(token, "$()")
		switch {
		case reference[0] == token || variables[name]:
			return ""
		case reference[1] == "" && name == wanted, reference[1] != "" && schema.Resembles(name, wanted):
			return token
		}
	}
	return ""
}

// meantKey returns the token of a label or an annotation that a keyReference resembles, or "".
func meantKey(reference []string) string {
	if strings.HasPrefix(reference[0], "$$") || tokenAt(reference[0]) != "" {
		return ""
	}
	for field, begin := range map[string]string{Labels: labelToken, Annotations: annotationToken} {
		if !schema.Resembles(reference[1], strings.Trim(begin, "$(:")) {
			continue
		}
		key := strings.Map(func(r rune) rune {
			if isNotInKeys(r) {
				return -1
			}
			return r
		}, reference[2])
		return MetadataKey{field, cmp.Or(key, "KEY")}.Token()
	}
	return ""
}

// visitStrings calls visit with each string in a JSON value and its path.
func visitStrings(at string, value any, visit func(at, text string)) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			step := "." + key
			if strings.ContainsAny(key, "./[]") || key == "" {
				step = "[" + key + "]"
			}
			visitStrings(at+step, value[key], visit)
		}
	case []any:
		for i, item := range value {
			visitStrings(fmt.Sprintf("%s[%d]", at, i), item, visit)
		}
	case string:
		visit(at, value)
	}
}
