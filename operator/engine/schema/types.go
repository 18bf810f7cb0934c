package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker collects the problems of one object.
type checker struct {
	catalog  *Catalog
	problems []Problem
}

func (c *checker) report(at *field.Path, message, remedy string) {
	path := ""
	if at != nil {
		path = at.String()
	}
	c.problems = append(c.problems, Problem{Path: path, Message: message, Remedy: remedy})
}

var unmarshalerType = reflect.TypeFor[json.Unmarshaler]()

// value checks a JSON value against a Go type of Kubernetes. The value null is valid for every type: the API server
// reads it as a missing value.
func (c *checker) value(at *field.Path, t reflect.Type, value any, in *scope) {
	if value == nil {
		return
	}
	if reflect.PointerTo(t).Implements(unmarshalerType) {
		c.parsed(at, t, value)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		c.value(at, t.Elem(), value, in)
	case reflect.Struct:
		c.object(at, t, value, in)
	case reflect.Map:
		if entries, ok := value.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(entries)) {
				c.value(at.Key(key), t.Elem(), entries[key], nil)
			}
		} else {
			c.wrongType(at, "an object", value)
		}
	case reflect.Slice:
		c.list(at, t, value, in)
	default:
		c.scalar(at, t, value)
	}
}

// object checks a value against a struct.
func (c *checker) object(at *field.Path, t reflect.Type, value any, in *scope) {
	entries, ok := value.(map[string]any)
	if !ok {
		c.wrongType(at, "an object", value)
		return
	}
	inside := &scope{at: at, node: structNode{c.catalog, t}, outer: in}
	fields := c.catalog.fieldsOf(t)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if fieldType, ok := fields[name]; ok {
			c.value(at.Child(name), fieldType, entries[name], inside)
		} else {
			c.unknownField(inside, name)
		}
	}
	if rule := rules[t]; rule != nil {
		rule(c, at, entries)
	}
}

func (c *checker) list(at *field.Path, t reflect.Type, value any, in *scope) {
	items, ok := value.([]any)
	switch {
	case ok:
		for i, item := range items {
			c.value(at.Index(i), t.Elem(), item, in)
		}
	case t.Elem().Kind() == reflect.Uint8:
		c.base64(at, value)
	default:
		c.wrongType(at, "a list", value)
	}
}

func (c *checker) scalar(at *field.Path, t reflect.Type, value any) {
	switch kind := t.Kind(); {
	case kind == reflect.String:
		text, ok := value.(string)
		if !ok {
			c.wrongType(at, "a string", value)
			return
		}
		if allowed := enums[t]; allowed != nil && text != "" && !slices.Contains(allowed, text) {
			c.unsupported(at, text, allowed)
		}
	case kind == reflect.Bool:
		if _, ok := value.(bool); !ok {
			c.wrongType(at, "true or false", value)
		}
	case kind >= reflect.Int && kind <= reflect.Uint64:
		number, ok := wholeNumber(value)
		if !ok {
			c.wrongType(at, "a whole number", value)
		} else if zero := reflect.Zero(t); zero.CanInt() && zero.OverflowInt(number) ||
			zero.CanUint() && (number < 0 || zero.OverflowUint(uint64(number))) {
			c.report(at, fmt.Sprintf("%d is out of range", number), "")
		}
	case kind == reflect.Float32 || kind == reflect.Float64:
		if kindOf(value) != aNumber {
			c.wrongType(at, "a number", value)
		}
	}
}

// unsupported reports a value that is not one of those allowed.
func (c *checker) unsupported(at *field.Path, value string, allowed []string) {
	remedy := "must be " + orList(allowed)
	if found := Closest(value, allowed); found != "" {
		remedy = "did you mean " + found + "?"
	}
	c.report(at, fmt.Sprintf("%q is not a supported value", value), remedy)
}

// fieldsOf returns the types of the fields of a struct, by their names in JSON.
func (c *Catalog) fieldsOf(t reflect.Type) map[string]reflect.Type {
	if cached, ok := c.fields.Load(t); ok {
		return cached.(map[string]reflect.Type)
	}
	fields := map[string]reflect.Type{}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		embedded := field.Type
		if embedded.Kind() == reflect.Pointer {
			embedded = embedded.Elem()
		}
		switch {
		case name == "-" || !field.IsExported():
		case name == "" && field.Anonymous && embedded.Kind() == reflect.Struct:
			maps.Copy(fields, c.fieldsOf(embedded))
		case name == "":
			fields[field.Name] = field.Type
		default:
			fields[name] = field.Type
		}
	}
	c.fields.Store(t, fields)
	return fields
}

// structNode is a struct type as a node.
type structNode struct {
	catalog *Catalog
	t       reflect.Type
}

func (n structNode) names() []string {
	return slices.Sorted(maps.Keys(n.catalog.fieldsOf(n.t)))
}

func (n structNode) child(name string) node {
	t := n.catalog.fieldsOf(n.t)[name]
	if t == nil {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(unmarshalerType) {
		return nil
	}
	return structNode{n.catalog, t}
}
