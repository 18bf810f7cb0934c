package schema

import (
	"fmt"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker collects the problems of one object.
type checker struct {
	catalog *Catalog
	// isLater is true for an object of a version of Kubernetes that is later than the schemas.
	isLater  bool
	problems []Problem
}

func (c *checker) report(at *field.Path, message, remedy string) {
	path := ""
	if at != nil {
		path = at.String()
	}
	c.problems = append(c.problems, Problem{Path: path, Message: message, Remedy: remedy})
}

// unchecked reports a field with something that the schemas do not have, if a later version of Kubernetes may have it.
func (c *checker) unchecked(at *field.Path, what string) bool {
	if c.isLater {
		c.problems = append(c.problems, Problem{
			Path: at.String(), Unchecked: true,
			Message: fmt.Sprintf("%s is unknown to Kubernetes %s, whose schemas are the newest here", what, Newest()),
		})
	}
	return c.isLater
}

// unsupported reports a value that is not one of those allowed.
func (c *checker) unsupported(at *field.Path, value string, allowed []string) {
	if c.unchecked(at, fmt.Sprintf("%q", value)) {
		return
	}
	remedy := "must be " + orList(allowed)
	if found := Closest(value, allowed); found != "" {
		remedy = "did you mean " + found + "?"
	}
	c.report(at, fmt.Sprintf("%q is not a supported value", value), remedy)
}

// kubernetesRules checks an object of a type of Kubernetes for what the type of its fields does not tell.
func (c *checker) kubernetesRules(at *field.Path, s *structuralschema.Structural, entries map[string]any) {
	if !strings.HasPrefix(s.Title, kubernetesTypes) {
		return
	}
	if s.ValueValidation != nil && !IsWithin(at.String(), "status") { // the API server ignores status
		c.required(at, entries, s.ValueValidation.Required...)
	}
	for name, allowed := range enums[s.Title] {
		c.oneOf(at.Child(name), entries[name], allowed...)
	}
	if rule := rules[s.Title]; rule != nil {
		rule(c, at, entries)
	}
}
