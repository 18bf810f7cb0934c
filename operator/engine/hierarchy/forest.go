package hierarchy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Forest has the policyspaces of a cluster and their hierarchy. The zero value is an empty Forest.
type Forest struct {
	spaces   map[string]*v1alpha1.PolicySpace
	children map[string][]string
}

// NewForest returns a Forest of policyspaces. The caller must not change them afterwards.
func NewForest(spaces []*v1alpha1.PolicySpace) Forest {
	f := Forest{spaces: map[string]*v1alpha1.PolicySpace{}, children: map[string][]string{}}
	for _, space := range spaces {
		f.spaces[space.Name] = space
		if space.Spec.Parent != "" {
			f.children[space.Spec.Parent] = append(f.children[space.Spec.Parent], space.Name)
		}
	}
	for _, names := range f.children {
		slices.Sort(names)
	}
	return f
}

// Get returns a policyspace, or nil if it does not exist.
func (f Forest) Get(space string) *v1alpha1.PolicySpace { return f.spaces[space] }

// Names returns the names of all policyspaces in ascending order.
func (f Forest) Names() []string { return slices.Sorted(maps.Keys(f.spaces)) }

// Children returns the names of the policyspaces whose parent is space, in ascending order.
func (f Forest) Children(space string) []string { return f.children[space] }

// BrokenError reports why the ancestors of a policyspace cannot be determined.
type BrokenError struct {
	// Cycle reports whether one of its ancestors is its own ancestor. Otherwise, Missing is the name of the
	// policyspace, or of the ancestor, that does not exist.
	Cycle   bool
	Missing string

	space string
}

func (e *BrokenError) Error() string {
	switch {
	case e.Cycle:
		return fmt.Sprintf("policyspace %s is its own ancestor: change the parent of one of its ancestors", e.space)
	case e.Missing == e.space:
		return fmt.Sprintf("policyspace %s does not exist: create it", e.space)
	}
	return fmt.Sprintf(
		"policyspace %s is below policyspace %s, which does not exist: create it, or choose another parent", e.space,
		e.Missing)
}

// Lineage returns a policyspace and its ancestors, the root last. The error is a *BrokenError.
func (f Forest) Lineage(space string) ([]*v1alpha1.PolicySpace, error) {
	var line []*v1alpha1.PolicySpace
	for at := space; ; {
		found := f.spaces[at]
		switch {
		case found == nil:
			return nil, &BrokenError{Missing: at, space: space}
		case len(line) > len(f.spaces):
			return nil, &BrokenError{Cycle: true, space: space}
		}
		line = append(line, found)
		if at = found.Spec.Parent; at == "" {
			return line, nil
		}
	}
}

// Path returns the path of a policyspace from the root, such as corp/online/team.
func Path(lineage []*v1alpha1.PolicySpace) string {
	names := make([]string, 0, len(lineage))
	for _, space := range slices.Backward(lineage) {
		names = append(names, space.Name)
	}
	return strings.Join(names, "/")
}

// Below returns the names of a policyspace and of all policyspaces below it.
func (f Forest) Below(space string) map[string]bool {
	below := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if below[name] {
			return
		}
		below[name] = true
		for _, child := range f.children[name] {
			visit(child)
		}
	}
	visit(space)
	return below
}
