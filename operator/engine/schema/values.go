package schema

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nstpl.dev/nstpl/operator/engine/quantities"
)

// The kinds of JSON values.
const (
	aBoolean = "boolean"
	aNumber  = "number"
	aString  = "string"
	aList    = "list"
	anObject = "object"
)

func kindOf(value any) string {
	switch value.(type) {
	case bool:
		return aBoolean
	case string:
		return aString
	case []any:
		return aList
	case map[string]any:
		return anObject
	}
	return aNumber
}

// wholeNumber returns a number without a fraction, as it is decoded from JSON.
func wholeNumber(value any) (number int64, ok bool) {
	switch value := value.(type) {
	case int64:
		return value, true
	case float64:
		return int64(value), value == math.Trunc(value) && math.Abs(value) < 1<<53
	}
	return 0, false
}

// maxShown is the number of characters of a value in a message.
const maxShown = 40

// describe returns a value in words, such as: the string "five".
func describe(value any) string {
	switch kindOf(value) {
	case aString:
		text := []rune(value.(string))
		if len(text) > maxShown {
			text = append(text[:maxShown], '…')
		}
		return fmt.Sprintf("the string %q", string(text))
	case aList:
		return "a list"
	case anObject:
		return "an object"
	case aBoolean:
		return fmt.Sprint(value)
	}
	return "the number " + scalarText(value)
}

// scalarText returns a scalar as it is written in JSON.
func scalarText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}

// wrongType reports a value of another type than wanted.
func (c *checker) wrongType(at *field.Path, wanted string, value any) {
	c.report(at, "must be "+wanted+", not "+describe(value), remedyOfType(wanted, value))
}

func remedyOfType(wanted string, value any) string {
	text, isText := value.(string)
	switch kind := kindOf(value); wanted {
	case "a string":
		if kind == aNumber || kind == aBoolean {
			return "write it in quotes: " + strconv.Quote(scalarText(value))
		}
	case "a whole number", "a number":
		if number, err := strconv.ParseInt(text, 10, 64); isText && err == nil {
			return "remove the quotes: " + strconv.FormatInt(number, 10)
		}
	case "true or false":
		switch strings.ToLower(text) {
		case "true", "yes", "on", "y":
			return "write true, without quotes"
		case "false", "no", "off", "n":
			return "write false, without quotes"
		}
	case "a list":
		if kind == anObject || kind == aString {
			return "write it as an item of a list, after a dash"
		}
	}
	return ""
}

// scalars check values of the types of Kubernetes that have parsers of their own, and of the formats of numbers and
// strings.
var scalars = map[string]func(c *checker, at *field.Path, value any){
	kubernetesTypes + "byte":  (*checker).base64,
	kubernetesTypes + "int32": (*checker).int32,

	kubernetesTypes + "apimachinery.pkg.api.resource.Quantity": func(c *checker, at *field.Path, value any) {
		if _, err := quantities.Decode([]byte(scalarText(value))); err != nil {
			c.report(at, "must be a quantity, not "+describe(value), quantityRemedy(value))
		}
	},
	kubernetesTypes + "apimachinery.pkg.util.intstr.IntOrString": func(c *checker, at *field.Path, value any) {
		if !isParsed(value, &intstr.IntOrString{}) {
			c.report(at, "must be a whole number or a string, not "+describe(value), "")
		}
	},
	metaTypes + "Time": func(c *checker, at *field.Path, value any) {
		c.time(at, value, &metav1.Time{})
	},
	metaTypes + "MicroTime": func(c *checker, at *field.Path, value any) {
		c.time(at, value, &metav1.MicroTime{})
	},
}

func isParsed(value, parser any) bool {
	data, err := json.Marshal(value)
	return err == nil && json.Unmarshal(data, parser) == nil
}

func (c *checker) time(at *field.Path, value any, parser json.Unmarshaler) {
	if !isParsed(value, parser) {
		c.report(at, "must be a time, not "+describe(value), "write it as 2006-01-02T15:04:05Z")
	}
}

func (c *checker) int32(at *field.Path, value any) {
	number, ok := wholeNumber(value)
	if !ok {
		c.wrongType(at, "a whole number", value)
	} else if number != int64(int32(number)) {
		c.report(at, fmt.Sprintf("%d is out of range", number), "")
	}
}

const quantityForms = "write a number with an optional suffix, such as 10, 500m or 2Gi"

func quantityRemedy(value any) string {
	text, ok := value.(string)
	if !ok {
		return quantityForms
	}
	if quantities.IsExcessive(text) {
		return quantities.Forms
	}
	text = strings.Join(strings.Fields(text), "")
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	suffix := strings.ToLower(text[len(number):])
	bytes := strings.TrimSuffix(suffix, "b")
	for _, known := range []string{"k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", ""} {
		if strings.ToLower(known) == bytes {
			if meant, err := quantities.Parse(number + known); err == nil && meant.Sign() >= 0 {
				return "did you mean " + number + known + "?"
			}
		}
	}
	return quantityForms
}

func (c *checker) base64(at *field.Path, value any) {
	if items, ok := value.([]any); ok { // the API server reads numbers as bytes
		if !isParsed(items, &[]byte{}) {
			c.wrongType(at, "a string", value)
		}
		return
	}
	text, ok := value.(string)
	if !ok {
		c.wrongType(at, "a string", value)
		return
	}
	if _, err := base64.StdEncoding.DecodeString(text); err != nil {
		c.report(at, "must be encoded as base64", "encode it, or declare the text in stringData")
	}
}
