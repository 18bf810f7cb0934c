package schema

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	typedObject = regexp.MustCompile(`(?s)^failed to create typed patch object \(.*?, Kind=\w+\): (.*)$`)
	conversion  = regexp.MustCompile(
		`(?s)^(?:failed to convert new object \(.*?, Kind=\w+\) to proper version: )?unable to convert unstructured object to .*?, Kind=\w+: (?:error decoding from json: )?(.*)$`)
	strictError = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"`)
	wrongGoType = regexp.MustCompile(
		`^json: cannot unmarshal (\w+)(?: [^ ]+)? into Go (?:struct field \w+\.([^ ]+)|value) of type (\S+)$`)
	unstructuredValue = regexp.MustCompile(`^&(?:value\.valueUnstructured)?\{(?:Value:)?(.*)\}$`)
)

// Rejected returns the problems in a message of the API server about an object that does not have the schema of its
// kind, or none for another message. The API server returns such messages with the status of an internal error.
func Rejected(message string) []Problem {
	var problems []Problem
	if match := typedObject.FindStringSubmatch(message); match != nil {
		for line := range strings.SplitSeq(strings.TrimPrefix(match[1], "errors:\n"), "\n") {
			path, reason, found := strings.Cut(strings.TrimSpace(line), ": ")
			if !found || !strings.HasPrefix(path, ".") {
				path, reason = "", strings.TrimSpace(line)
			}
			problems = append(problems, Problem{Path: strings.TrimPrefix(path, "."), Message: schemaReason(reason)})
		}
		return problems
	}
	if match := conversion.FindStringSubmatch(message); match != nil {
		return []Problem{conversionProblem(match[1])}
	}
	if strings.Contains(message, "strict decoding error") {
		for _, match := range strictError.FindAllStringSubmatch(message, -1) {
			problems = append(problems, Problem{Path: match[1], Message: unknownField})
		}
	}
	return problems
}

// schemaReason returns why a field does not have its schema, without the terms of the API server's implementation.
func schemaReason(reason string) string {
	if reason == "field not declared in schema" {
		return unknownField
	}
	expected, got, found := strings.Cut(strings.TrimPrefix(reason, "expected "), ", got ")
	if !found {
		return reason
	}
	expected = strings.NewReplacer("map", "an object", "list", "a list", "string", "a string", "boolean", "a boolean",
		"numeric (int or float)", "a number").Replace(expected)
	if match := unstructuredValue.FindStringSubmatch(got); match != nil {
		got = match[1]
		if strings.HasPrefix(got, "map[") {
			got = "an object"
		}
	}
	return fmt.Sprintf("must be %s, not %s", expected, got)
}

// conversionProblem returns why a value of an object cannot be decoded.
func conversionProblem(reason string) Problem {
	switch match := wrongGoType.FindStringSubmatch(reason); {
	case match != nil:
		return Problem{Path: match[2], Message: "has a value of the wrong type, " + match[1]}
	case strings.HasPrefix(reason, "quantities must match"):
		return Problem{Message: "a quantity in it is not a number with an optional unit, such as 500m, 5 or 1Gi"}
	case strings.HasPrefix(reason, "illegal base64"):
		return Problem{Message: "a value in it is not encoded with base64", Remedy: "use stringData for plain text"}
	}
	return Problem{Message: reason}
}
