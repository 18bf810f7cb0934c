package inforce

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"time"

	"nstpl.dev/nstpl/operator/engine/quantities"
)

// isEmpty reports whether the API server may leave a value out when it stores an object.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return reflect.ValueOf(value).IsZero()
}

// isScalar reports whether a value is a text, a number or a boolean.
func isScalar(value any) bool {
	switch value.(type) {
	case nil, map[string]any, []any:
		return false
	}
	return true
}

// setIfZero are the fields that the API server sets if their number is zero.
var setIfZero = []string{
	"nodePort", "targetPort", "healthCheckNodePort", "timeoutSeconds", "periodSeconds", "successThreshold",
	"failureThreshold",
}

// isSetIfZero reports whether a declared value means that the API server chooses one, such as an empty clusterIP.
func isSetIfZero(field string, declared any) bool {
	number, isNumber := number(declared)
	return declared == "" || isNumber && number == 0 && slices.Contains(setIfZero, field)
}

// isSame reports whether two scalars are equal or, unless the comparison is literal, two ways to write the same.
func (c comparison) isSame(declared, stored any) bool {
	if reflect.DeepEqual(declared, stored) {
		return true
	}
	if x, y, ok := integers(declared, stored); ok {
		return x == y // which float64 would round
	}
	x, isNumber := number(declared)
	y, isToo := number(stored)
	if isNumber && isToo {
		return x == y
	}
	return !c.isLiteral && meansSame(fmt.Sprint(declared), fmt.Sprint(stored))
}

func integers(a, b any) (x, y int64, ok bool) {
	x, isInteger := a.(int64)
	y, isAlso := b.(int64)
	return x, y, isInteger && isAlso
}

// number returns a number of JSON, which decoders represent by several types.
func number(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	case int:
		return float64(value), true
	}
	return 0, false
}

// meansSame reports whether two texts are equal, or two ways to write the same quantity, duration, time or bytes. Users
// of a namespace choose the stored text, also of an environment variable.
func meansSame(left, right string) bool {
	if left == right {
		return true
	}
	if x, y, ok := both(quantities.Parse, left, right); ok {
		return x.Cmp(y) == 0
	}
	if x, y, ok := both(time.ParseDuration, left, right); ok {
		return x == y
	}
	rfc3339 := func(text string) (time.Time, error) { return time.Parse(time.RFC3339, text) }
	if x, y, ok := both(rfc3339, left, right); ok {
		return x.Equal(y)
	}
	x, y, ok := both(base64.StdEncoding.DecodeString, left, right)
	return ok && bytes.Equal(x, y)
}

// texts returns the data of a Secret as stringData has it, or other bytes that are declared in base64.
func texts(data any) map[string]any {
	texts := map[string]any{}
	fields, _ := data.(map[string]any)
	for key, value := range fields {
		encoded, _ := value.(string)
		if text, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			texts[key] = string(text)
		}
	}
	return texts
}

// both parses two texts, and reports whether both are valid.
func both[T any](parse func(string) (T, error), left, right string) (x, y T, ok bool) {
	x, errX := parse(left)
	y, errY := parse(right)
	return x, y, errX == nil && errY == nil
}
