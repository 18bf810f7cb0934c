package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	strictjson "sigs.k8s.io/json"

	"nstpl.dev/nstpl/operator/engine/quantities"
)

// Mistake is a field that cannot be decoded. Field is its path, or "" if the decoder does not name it.
type Mistake struct {
	Field, Message string
}

func (m Mistake) Error() string { return m.Message }

// Decode decodes an object as strictly as the API server does, and returns the mistakes: unknown fields and values of
// the wrong type. Whole reports whether it decoded everything but unknown fields. Otherwise, fields are missing. An
// object with a quantity that would take long to decode is not decoded.
func Decode(data []byte, into any) (mistakes []Mistake, whole bool) {
	if excessive, ok := errors.AsType[*quantities.ExcessiveError](quantities.Check(data, reflect.TypeOf(into))); ok {
		return []Mistake{{excessive.Field, excessive.Error()}}, false
	}
	unknown, err := strictjson.UnmarshalStrict(data, into)
	for _, problem := range unknown {
		mistake := Mistake{Message: problem.Error()}
		if field, ok := errors.AsType[strictjson.FieldError](problem); ok {
			mistake.Field = field.FieldPath()
		}
		mistakes = append(mistakes, mistake)
	}
	if err == nil {
		return mistakes, true
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		value, _, _ := strings.Cut(wrong.Value, " ")
		field := wrong.Field
		message := fmt.Sprintf("%s is %s: it must be %s", field, nounOf(value), nounOfType(wrong.Type))
		if field == "" {
			message = fmt.Sprintf("a value is %s: it must be %s", nounOf(value), nounOfType(wrong.Type))
		}
		return append(mistakes, Mistake{field, message}), false
	}
	return append(mistakes, Mistake{Message: strings.TrimPrefix(err.Error(), "json: ")}), false
}

// nounOf returns what the decoder's name of a JSON value means, with its article.
func nounOf(value string) string {
	switch value {
	case "bool":
		return "a boolean"
	case "array":
		return "a list"
	case "object":
		return "an object"
	}
	return "a " + value
}

// nounOfType returns the values that fit into a type of Go.
func nounOfType(into reflect.Type) string {
	for into.Kind() == reflect.Pointer {
		into = into.Elem()
	}
	switch into.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Interface:
		return "an object"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	default:
		return "a whole number within its limits"
	}
}
