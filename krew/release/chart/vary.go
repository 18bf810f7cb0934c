package chart

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// The nodes that templates evaluate. They are values of maps and elements of lists in the tree of an object.
type (
	// optional is a value that exists under a condition.
	optional struct {
		condition string
		value     any
	}
	// expression is a scalar that a template computes.
	expression string
	// fromValue is a map or a list in the chart's values. Nothing is written if it is empty. As an element of a list,
	// it stands for all elements. As the value of splice, it stands for all entries.
	fromValue string
)

// splice is the key of entries that are added to a map.
const splice = ""

// vary adds to the objects of the chart what another kustomization makes of the objects in base, under a condition.
func vary(all, base, with []*object, condition string) ([]*object, error) {
	for _, changed := range with {
		before := find(base, changed.key)
		if before == nil {
			changed.condition = condition
			all = append(all, changed)
			continue
		}
		if _, err := varyNode(find(all, changed.key).tree, before.content, changed.content, condition); err != nil {
			return nil, fmt.Errorf("%s: %w", changed.key, err)
		}
	}
	for _, before := range base {
		if find(with, before.key) != nil {
			continue
		}
		o := find(all, before.key)
		if o.condition != "" {
			return nil, fmt.Errorf("%s: two kustomizations leave it out, which the chart cannot express", o.key)
		}
		o.condition = "not (" + condition + ")"
	}
	return all, nil
}

// find returns the object with a key, or nil.
func find(objects []*object, key string) *object {
	i := slices.IndexFunc(objects, func(o *object) bool { return o.key == key })
	if i < 0 {
		return nil
	}
	return objects[i]
}

// varyNode returns the tree with what the value with adds to the value base. A kustomization may add entries to maps,
// and elements to the end of lists.
func varyNode(tree, base, with any, condition string) (any, error) {
	switch base := base.(type) {
	case map[string]any:
		with, ok := with.(map[string]any)
		if !ok {
			return nil, errors.New("a map is replaced, which the chart cannot express")
		}
		return tree, varyMap(tree.(map[string]any), base, with, condition)
	case []any:
		with, ok := with.([]any)
		if !ok || len(with) < len(base) {
			return nil, errors.New("elements of a list are removed, which the chart cannot express")
		}
		return varyList(tree.([]any), base, with, condition)
	}
	if !reflect.DeepEqual(base, with) {
		return nil, fmt.Errorf("%v is replaced by %v, which the chart cannot express", base, with)
	}
	return tree, nil
}

func varyMap(tree, base, with map[string]any, condition string) error {
	for key := range base {
		if _, ok := with[key]; !ok {
			return fmt.Errorf("%s is removed, which the chart cannot express", key)
		}
	}
	for key, value := range with {
		before, ok := base[key]
		if !ok {
			if _, ok := tree[key]; ok {
				return fmt.Errorf("%s: two kustomizations add it, which the chart cannot express", key)
			}
			tree[key] = optional{condition, value}
			continue
		}
		var err error
		if tree[key], err = varyNode(tree[key], before, value, condition); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func varyList(tree, base, with []any, condition string) ([]any, error) {
	for i := range base {
		var err error
		if tree[i], err = varyNode(tree[i], base[i], with[i], condition); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	for _, added := range with[len(base):] {
		tree = append(tree, optional{condition, added})
	}
	return tree, nil
}
