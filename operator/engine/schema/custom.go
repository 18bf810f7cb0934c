package schema

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// customKind is the schema of a kind that a CustomResourceDefinition defines.
type customKind struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	// hasStatus is true if the API server ignores status when an object is created.
	hasStatus bool
	// cel compiles the validation rules in CEL at its first call, which takes longer than everything else.
	cel func() *cel.Validator
}

// newCustomKind returns the schema of a version of a kind.
func newCustomKind(
	definition *apiextensionsv1.CustomResourceDefinition, version *apiextensionsv1.CustomResourceDefinitionVersion,
) (*customKind, error) {
	fail := func(reason any) error {
		return fmt.Errorf("customresourcedefinitions %q: the schema of version %s is invalid: %v", definition.Name,
			version.Name, reason)
	}
	if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
		return nil, fail("it is missing")
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		version.Schema.OpenAPIV3Schema, props, nil); err != nil {
		return nil, fail(err)
	}
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, fail(err)
	}
	if invalid := structuralschema.ValidateStructural(nil, structural); len(invalid) > 0 {
		return nil, fail(invalid.ToAggregate())
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, fail(err)
	}
	return &customKind{
		structural: structural, validator: validator,
		hasStatus: version.Subresources != nil && version.Subresources.Status != nil,
		cel: sync.OnceValue(func() *cel.Validator {
			return cel.NewValidator(structural, true, celconfig.PerCallLimit)
		}),
	}, nil
}

// custom checks an object against the schema of its kind, in the same steps as the API server: unknown fields,
// defaults, the schema, keys of lists, and rules in CEL.
func (c *checker) custom(kind *customKind, object map[string]any) {
	c.structural(nil, rootOf(kind.structural), object, nil)
	copied := runtime.DeepCopyJSON(object)
	if kind.hasStatus {
		delete(copied, "status")
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(copied, kind.structural)
	defaulting.Default(copied, kind.structural)
	invalid := validation.ValidateCustomResource(nil, copied, kind.validator)
	invalid = append(invalid, listtype.ValidateListSetsAndMaps(nil, kind.structural, copied)...)
	c.invalid(invalid)
	c.celRules(kind, copied)
}

// rootOf returns the schema of an object with the fields that every object has.
func rootOf(s *structuralschema.Structural) *structuralschema.Structural {
	root := *s
	root.XEmbeddedResource = true
	return &root
}

// structural reports unknown fields, values of wrong types and values that an enumeration does not contain.
func (c *checker) structural(at *field.Path, s *structuralschema.Structural, value any, in *scope) {
	if value == nil { // the API server reads it as a missing value
		return
	}
	if check := scalars[s.Title]; check != nil {
		check(c, at, value)
		return
	}
	if s.XIntOrString {
		if _, ok := wholeNumber(value); !ok && kindOf(value) != aString {
			c.wrongType(at, "a whole number or a string", value)
		}
		return
	}
	switch s.Type {
	case "object":
		if entries, ok := value.(map[string]any); ok {
			c.properties(at, s, entries, in)
		} else {
			c.wrongType(at, "an object", value)
		}
		return
	case "array":
		items, ok := value.([]any)
		if !ok {
			c.wrongType(at, "a list", value)
		}
		for i, item := range items {
			if s.Items != nil {
				c.structural(at.Index(i), s.Items, item, in)
			}
		}
		return
	}
	if wanted := scalarTypes[s.Type]; wanted.is != nil && !wanted.is(value) {
		c.wrongType(at, wanted.words, value)
	} else if text, ok := value.(string); ok && s.ValueValidation != nil {
		if allowed := stringsOf(s.ValueValidation.Enum); len(allowed) > 0 && !slices.Contains(allowed, text) {
			c.unsupported(at, text, slices.DeleteFunc(allowed, func(value string) bool { return value == "" }))
		}
	}
}

// scalarTypes are the types of scalars in schemas.
var scalarTypes = map[string]struct {
	words string
	is    func(value any) bool
}{
	"string":  {"a string", func(value any) bool { return kindOf(value) == aString }},
	"boolean": {"true or false", func(value any) bool { return kindOf(value) == aBoolean }},
	"number":  {"a number", func(value any) bool { return kindOf(value) == aNumber }},
	"integer": {"a whole number", func(value any) bool { _, ok := wholeNumber(value); return ok }},
}

func stringsOf(values []structuralschema.JSON) []string {
	var texts []string
	for _, value := range values {
		if text, ok := value.Object.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

func (c *checker) properties(at *field.Path, s *structuralschema.Structural, entries map[string]any, in *scope) {
	inside := &scope{at: at, node: &node{s}, outer: in}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		value := entries[name]
		property, ok := s.Properties[name]
		switch {
		case s.XEmbeddedResource && name == "metadata":
			c.structural(at.Child(name), c.catalog.kubernetes().named(objectMeta), value, inside)
		case s.XEmbeddedResource && (name == "apiVersion" || name == "kind"):
			if kindOf(value) != aString {
				c.wrongType(at.Child(name), "a string", value)
			}
		case ok:
			c.structural(at.Child(name), &property, value, inside)
		case s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
			c.structural(at.Key(name), s.AdditionalProperties.Structural, value, nil)
		case s.AdditionalProperties != nil && s.AdditionalProperties.Bool, s.XPreserveUnknownFields:
		default:
			c.unknownField(inside, name)
		}
	}
	c.kubernetesRules(at, s, entries)
}

// invalid reports errors of the API server's own validation, except those whose fields are already reported.
func (c *checker) invalid(errs field.ErrorList) {
	for _, err := range errs {
		path := pathOf(err.Field)
		isReported := slices.ContainsFunc(c.problems, func(p Problem) bool {
			return p.Path != "" && IsWithin(plainPath(path), plainPath(p.Path))
		})
		if isReported || path == "" && (strings.HasPrefix(err.Detail, "Checked value must be of type") ||
			strings.HasSuffix(err.Detail, "must validate at least one schema (anyOf)")) {
			continue
		}
		problem := Problem{Path: path}
		switch err.Type {
		case field.ErrorTypeRequired:
			problem.Message, problem.Remedy = "is required", "add it"
		case field.ErrorTypeDuplicate:
			problem.Message, problem.Remedy = "is declared twice", "remove one of them"
		default:
			problem.Message, problem.Remedy = inWords(plainDetail(err))
		}
		c.problems = append(c.problems, problem)
	}
}

// plainDetail returns the detail of an error without the path of the field, which the API server repeats in it.
func plainDetail(err *field.Error) string {
	detail := err.Detail
	if _, rest, found := strings.Cut(detail, " in body "); found {
		detail = rest
	}
	if detail == "" {
		return "is not valid"
	}
	return detail
}

// pathOf returns the path in an error of the API server's validation.
func pathOf(name string) string {
	if name == "<nil>" || name == "." {
		return ""
	}
	var path strings.Builder
	for i, step := range strings.Split(name, ".") {
		switch _, err := strconv.Atoi(step); {
		case err == nil && i > 0:
			path.WriteString("[" + step + "]")
		case i > 0:
			path.WriteString("." + step)
		default:
			path.WriteString(step)
		}
	}
	return path.String()
}

// IsWithin reports whether a path is that of a field or of something in it.
func IsWithin(path, outer string) bool {
	rest, found := strings.CutPrefix(path, outer)
	return found && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
