package fields

import (
	"fmt"
	"reflect"
	"slices"
)

// keyFields are the fields that may identify the items of a list, in the order in which they are tried. They are the
// keys of the lists of Kubernetes, and of lists that Kubernetes treats as a whole but whose items have names.
var keyFields = [][]string{
	{"name"}, {"kind", "name"}, {"kind", "name", "namespace"}, {"uid"}, {"type"}, {"key"},
	{"containerPort", "protocol"},
	{"port", "protocol"}, {"port"}, {"mountPath"}, {"devicePath"}, {"ip"}, {"topologyKey", "whenUnsatisfiable"},
}

// identify returns a function that returns the step to an item of two lists. It reports false if the items of one list
// cannot be distinguished by key fields or by their values.
func identify(from, to []any) (step func(item any) Step, ok bool) {
	candidates := []func(any) (Step, bool){valueStep}
	for _, fields := range keyFields {
		candidates = append(candidates, func(item any) (Step, bool) { return keyStep(fields, item) })
	}
	for _, candidate := range candidates {
		if distinguishes(candidate, from) && distinguishes(candidate, to) {
			return func(item any) Step {
				step, _ := candidate(item)
				return step
			}, true
		}
	}
	return nil, false
}

// distinguishes reports whether every item of a list has a step of its own.
func distinguishes(step func(any) (Step, bool), items []any) bool {
	seen := map[string]bool{}
	for _, item := range items {
		step, ok := step(item)
		if !ok || seen[step.id()] {
			return false
		}
		seen[step.id()] = true
	}
	return true
}

// id identifies the item of a step. Unlike String, it distinguishes the number 1 from the string "1".
func (s Step) id() string {
	if s.Keys == nil {
		return fmt.Sprintf("%#v", s.Value)
	}
	return fmt.Sprintf("%#v", s.Keys)
}

func valueStep(item any) (Step, bool) { return Step{Value: item}, isScalar(item) }

func keyStep(fields []string, item any) (Step, bool) {
	value, ok := item.(map[string]any)
	if !ok {
		return Step{}, false
	}
	var step Step
	for _, field := range fields {
		if !isScalar(value[field]) {
			return Step{}, false
		}
		step.Keys = append(step.Keys, Key{Field: field, Value: value[field]})
	}
	return step, true
}

func isScalar(value any) bool {
	switch value.(type) {
	case string, bool, int64, float64:
		return true
	}
	return false
}

// find returns the position of the item of a step in a list, or -1.
func (s Step) find(items []any) int {
	switch {
	case s.Keys != nil:
		return slices.IndexFunc(items, s.hasKeys)
	case s.Value != nil:
		return slices.Index(items, s.Value)
	case s.Index < len(items):
		return s.Index
	}
	return -1
}

func (s Step) hasKeys(item any) bool {
	value, ok := item.(map[string]any)
	return ok && !slices.ContainsFunc(s.Keys, func(key Key) bool {
		return !reflect.DeepEqual(value[key.Field], key.Value)
	})
}
