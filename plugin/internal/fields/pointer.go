package fields

import (
	"strconv"
	"strings"
)

// Pointer returns the path as a JSON pointer (RFC 6901) into an object that has the same structure, and the value
// there. The last step need not exist in the object: the value is then nil, and an item of a list has the pointer
// behind the last item. Pointer reports false if another step does not exist.
func (p Path) Pointer(object map[string]any) (pointer string, value any, ok bool) {
	value = object
	for i, step := range p {
		token, child, exists := step.in(value)
		if token == "" && !exists || !exists && i < len(p)-1 {
			return "", nil, false
		}
		pointer += "/" + escape.Replace(token)
		value = child
	}
	return pointer, value, true
}

// in returns the last part of the JSON pointer of a step, and the value there. The token is empty if the parent is
// neither a map nor a list, as the step needs it.
func (s Step) in(parent any) (token string, child any, exists bool) {
	switch parent := parent.(type) {
	case map[string]any:
		if s.Field != nil {
			child, exists = parent[*s.Field]
			return *s.Field, child, exists
		}
	case []any:
		if s.Field != nil {
			break
		}
		if at := s.find(parent); at >= 0 {
			return strconv.Itoa(at), parent[at], true
		}
		return "-", nil, false
	}
	return "", nil, false
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")
