package populate

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fieldSet is a node of FieldsV1. Its keys are "f:<name>" for a field, "k:<keys>" for an item of a list with keys,
// "v:<value>" for an item of a set and "." for the node itself. A node without children is owned as a whole.
type fieldSet map[string]fieldSet

func ownedFields(entry *metav1.ManagedFieldsEntry) (fieldSet, error) {
	if entry.FieldsV1 == nil {
		return fieldSet{}, nil
	}
	return parseFieldSet(entry.FieldsV1.GetRawString())
}

// parseFieldSet parses FieldsV1. Plans parse it for each object, and it consists of nothing but objects. So it is
// parsed in one pass, if it has the compact form in which the API server writes it and no escaped key.
func parseFieldSet(text string) (fieldSet, error) {
	if set, rest, ok := compactFieldSet(text); ok && rest == "" {
		return set, nil
	}
	set := fieldSet{}
	return set, json.Unmarshal([]byte(text), &set)
}

// compactFieldSet parses the set at the beginning of a text, and returns the rest of the text. It reports false if the
// text has another form.
func compactFieldSet(text string) (set fieldSet, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, "{}"); ok {
		return nil, rest, true // most nodes have no children
	}
	set = fieldSet{}
	for separator := "{"; ; separator = "," {
		if rest, ok = strings.CutPrefix(text, separator+`"`); !ok {
			rest, ok = strings.CutPrefix(text, "}")
			return set, rest, ok && separator == ","
		}
		end := strings.IndexFunc(rest, endsKey)
		if end < 0 || !strings.HasPrefix(rest[end:], `":`) {
			return nil, "", false
		}
		key := rest[:end]
		if set[key], text, ok = compactFieldSet(rest[end+len(`":`):]); !ok {
			return nil, "", false
		}
	}
}

// endsKey reports whether a character ends a key, or is not plain ASCII, which JSON may escape or replace.
func endsKey(r rune) bool { return r == '"' || r == '\\' || r < ' ' || r >= utf8.RuneSelf }

func (s fieldSet) child(key string) fieldSet {
	return s[key]
}

// within reports whether another set contains all fields of this one. A node without children owns everything below it,
// so it is not within a node that has children.
func (s fieldSet) within(other fieldSet) bool {
	for key, child := range s {
		otherChild, ok := other[key]
		if isEmptied := len(child) == 0 && len(otherChild) > 0; !ok || isEmptied || !child.within(otherChild) {
			return false
		}
	}
	return true
}

func (s fieldSet) hasAnnotation(key string) bool {
	annotations, ok := s.child("f:metadata")["f:annotations"]
	if !ok || len(annotations) == 0 {
		return ok
	}
	_, ok = annotations["f:"+key]
	return ok
}
