// Package fields compares two objects field by field.
//
// Compare returns a Change for each field that differs. Managers returns which field managers own a field of an object,
// according to its managedFields. Neither needs the schema of the object: items of a list are identified by their key
// fields, by their values, or by their positions, depending on the contents of the list.
package fields

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Path is the path of a field in an object.
type Path []Step

// Step is one step of a path: a field of a map, or an item of a list. Exactly one of Field, Keys, Value and Index is
// used. An Index is used if the others are empty.
type Step struct {
	Field *string
	// Keys are the fields that identify an item of a list of maps.
	Keys []Key
	// Value is the value of an item of a list of scalars.
	Value any
	// Index is the position of an item of any other list.
	Index int
}

// Key is a field that identifies an item of a list.
type Key struct {
	Field string
	Value any
}

// simpleName matches the names of fields that are written after a dot.
var simpleName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// String returns the path as in "spec.ports[port=53,protocol=UDP].targetPort", "data[ca.crt]" or "rules[0].verbs[get]".
func (p Path) String() string {
	var text strings.Builder
	for i, step := range p {
		switch {
		case step.Field != nil && simpleName.MatchString(*step.Field):
			if i > 0 {
				text.WriteByte('.')
			}
			text.WriteString(*step.Field)
		default:
			text.WriteString("[" + step.inBrackets() + "]")
		}
	}
	return text.String()
}

func (s Step) inBrackets() string {
	switch {
	case s.Field != nil:
		return *s.Field
	case s.Keys != nil:
		keys := make([]string, len(s.Keys))
		for i, key := range s.Keys {
			keys[i] = fmt.Sprintf("%s=%v", key.Field, key.Value)
		}
		return strings.Join(keys, ",")
	case s.Value != nil:
		return fmt.Sprint(s.Value)
	}
	return fmt.Sprint(s.Index)
}

// field returns the path of a field of the map at p.
func (p Path) field(name string) Path { return p.step(Step{Field: &name}) }

// step returns a path with one more step. It does not change p.
func (p Path) step(step Step) Path { return append(slices.Clip(p), step) }
