// Package quantities parses quantities of objects that no API server has validated, such as those of files, in little
// time and memory.
//
// Kubernetes' package resource computes ten to the power of an exponent: to parse 1e-999999999, or to compare
// 1e999999999 with a number, takes minutes and 415 MB (https://github.com/kubernetes/kubernetes/pull/141306 and
// https://github.com/kubernetes/kubernetes/pull/142013). A deadline does not end it. So such texts must not get there.
package quantities

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxLength is how many characters a quantity has at most. No number of JSON needs more than 24, and parsing takes time
// that grows with the square of the digits.
const maxLength = 64

// largeExponent matches a number whose exponent has more than two digits. It may have no other digits: e999 is a zero.
var largeExponent = regexp.MustCompile(`^[-+]?[0-9.]*[eE][-+]?[0-9]{3,}$`)

// IsExcessive reports whether a text is not parsed as a quantity, since that, or comparing the result, could take much
// time and memory.
func IsExcessive(text string) bool {
	text = strings.TrimSpace(text)
	return len(text) > maxLength || largeExponent.MatchString(text)
}

// Forms says which quantities are not excessive.
const Forms = "a quantity has at most 64 characters, and an exponent of at most two digits"

// errExcessive reports that a text is not parsed.
var errExcessive = errors.New(Forms)

// Parse is resource.ParseQuantity, with an error for a text that IsExcessive.
func Parse(text string) (resource.Quantity, error) {
	if IsExcessive(text) {
		return resource.Quantity{}, errExcessive
	}
	return resource.ParseQuantity(text)
}

// Decode decodes a quantity from JSON, with an error for one that IsExcessive.
func Decode(data []byte) (quantity resource.Quantity, err error) {
	if IsExcessive(strings.Trim(string(data), `"`)) {
		return quantity, errExcessive
	}
	return quantity, json.Unmarshal(data, &quantity)
}

// ExcessiveError reports a field with a quantity that IsExcessive.
type ExcessiveError struct{ Field, Text string }

func (e *ExcessiveError) Error() string {
	return fmt.Sprintf("%s is %.40q: %s", e.Field, e.Text, Forms)
}

// Check returns an ExcessiveError if a decoder would find a quantity in a JSON document that IsExcessive. into is the
// type that the document is to be decoded into, by a decoder that distinguishes upper and lower case. Check does not
// report what is wrong otherwise: a document that is not valid JSON is not decoded, either. If an object has a field
// twice, decoders decode both.
func Check(data []byte, into reflect.Type) error {
	if !haveQuantities(into) {
		return nil
	}
	c := checker{json.NewDecoder(bytes.NewReader(data))}
	c.decoder.UseNumber()
	if found, ok := errors.AsType[*ExcessiveError](c.check(into, "")); ok {
		return found
	}
	return nil
}

// CheckObject is Check for an object of a kind of Kubernetes. Which fields of other kinds are quantities is unknown.
func CheckObject(object *unstructured.Unstructured) error {
	into := scheme.Scheme.AllKnownTypes()[object.GroupVersionKind()]
	if !haveQuantities(into) {
		return nil
	}
	data, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	return Check(data, into)
}

type checker struct{ decoder *json.Decoder }

// check reads the next value, which is to be decoded into a type.
func (c checker) check(into reflect.Type, at string) error {
	if !haveQuantities(into) {
		var skipped json.RawMessage
		return c.decoder.Decode(&skipped)
	}
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	token, err := c.decoder.Token()
	switch token := token.(type) {
	case string:
		return judge(into, at, token)
	case json.Number:
		return judge(into, at, token.String())
	case json.Delim:
		return c.inside(into, at, token)
	}
	return err
}

func judge(into reflect.Type, at, text string) error {
	if into == quantityType && IsExcessive(text) {
		return &ExcessiveError{Field: strings.TrimPrefix(at, "."), Text: text}
	}
	return nil
}

// inside reads the values of an object or a list, and its end.
func (c checker) inside(into reflect.Type, at string, begin json.Delim) error {
	for i := 0; c.decoder.More(); i++ {
		inner, path := itemType(into), fmt.Sprintf("%s[%d]", at, i)
		if begin == '{' {
			key, err := c.decoder.Token()
			if err != nil {
				return err
			}
			inner, path = entryType(into, at, key.(string))
		}
		if err := c.check(inner, path); err != nil {
			return err
		}
	}
	_, err := c.decoder.Token()
	return err
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// itemType returns the type of the items of a list, or nil if the type is not one of lists.
func itemType(list reflect.Type) reflect.Type {
	if list.Kind() == reflect.Slice {
		return list.Elem()
	}
	return nil
}

// entryType returns the type and the path of a field of an object. The type is nil if the object does not have it.
func entryType(object reflect.Type, at, key string) (reflect.Type, string) {
	switch {
	case object.Kind() == reflect.Map:
		return object.Elem(), at + "[" + key + "]"
	case object.Kind() == reflect.Struct && object != quantityType:
		return fieldType(object, key), at + "." + key
	}
	return nil, at
}

func fieldType(object reflect.Type, key string) reflect.Type {
	for field := range object.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct {
			if inner := fieldType(field.Type, key); inner != nil {
				return inner
			}
		} else if name == key {
			return field.Type
		}
	}
	return nil
}

// known caches haveQuantities.
var known sync.Map

// haveQuantities reports whether values of a type may contain quantities. The type may be nil.
func haveQuantities(of reflect.Type) bool {
	if has, isKnown := known.Load(of); isKnown {
		return has.(bool)
	}
	has := of != nil && findQuantity(of, map[reflect.Type]bool{})
	known.Store(of, has)
	return has
}

func findQuantity(in reflect.Type, seen map[reflect.Type]bool) bool {
	if in == quantityType {
		return true
	}
	if seen[in] {
		return false
	}
	seen[in] = true
	switch in.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return findQuantity(in.Elem(), seen)
	case reflect.Struct:
		for field := range in.Fields() {
			if findQuantity(field.Type, seen) {
				return true
			}
		}
	default:
	}
	return false
}
