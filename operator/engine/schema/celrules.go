package schema

import (
	"context"
	"maps"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// celRules reports which validation rules in CEL an object violates. The API server evaluates them only if the object
// has no other problem. To report as much as possible at once, celRules evaluates the rules of every part without one.
func (c *checker) celRules(kind *customKind, object map[string]any) {
	var broken []string
	for _, problem := range c.problems {
		if problem.Message != unknownField { // rules do not see unknown fields
			broken = append(broken, plainPath(problem.Path))
		}
	}
	if len(broken) > 0 {
		c.celRulesOfParts(nil, kind.structural, object, broken)
	} else if rules := kind.cel(); rules != nil {
		c.evaluate(rules, nil, kind.structural, object)
	}
}

func (c *checker) evaluate(rules *cel.Validator, at *field.Path, s *structuralschema.Structural, value any) {
	invalid, _ := rules.Validate(context.Background(), at, s, value, nil, celconfig.RuntimeCELCostBudget)
	c.invalid(invalid)
}

// celRulesOfParts evaluates the rules of a value or, if there is a problem inside of it, those of its parts.
func (c *checker) celRulesOfParts(at *field.Path, s *structuralschema.Structural, value any, broken []string) {
	path := plainPath(pathOf(at.String()))
	if value == nil || slices.ContainsFunc(broken, func(b string) bool { return IsWithin(path, b) && b != "" }) {
		return
	}
	if at != nil && !slices.ContainsFunc(broken, func(b string) bool { return IsWithin(b, path) }) {
		if rules := cel.NewValidator(s, false, celconfig.PerCallLimit); rules != nil {
			c.evaluate(rules, at, s, value)
		}
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if property, ok := s.Properties[name]; ok {
				c.celRulesOfParts(at.Child(name), &property, value[name], broken)
			}
		}
	case []any:
		for i, item := range value {
			if s.Items != nil {
				c.celRulesOfParts(at.Index(i), s.Items, item, broken)
			}
		}
	}
}

// plainPath returns a path with a dot before each step, so that paths in both notations can be compared.
func plainPath(path string) string {
	return strings.NewReplacer("[", ".", "]", "").Replace(path)
}
