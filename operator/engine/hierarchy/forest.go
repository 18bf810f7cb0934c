package hierarchy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// Forest is the policyspaces of a cluster by their parents. Its zero value has none.
type Forest struct {
	spaces   map[string]*v1alpha1.PolicySpace
	children map[string][]string
}

// NewForest returns the forest of policyspaces, which are not to be changed afterwards.
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

// Get returns a policyspace, or nil.
func (f Forest) Get(space string) *v1alpha1.PolicySpace { return f.spaces[space] }

// Names returns the names of all policyspaces in ascending order.
func (f Forest) Names() []string { return slices.Sorted(maps.Keys(f.spaces)) }

// Children returns the names of the policyspaces in one, in ascending order.
func (f Forest) Children(space string) []string { return f.children[space] }

// BrokenError says why a policyspace has no place in the hierarchy.
type BrokenError struct {
	// Cycle tells whether it is above itself. Otherwise Missing, on the way up, does not exist.
	Cycle   bool
	Missing string

	space string
}

func (e *BrokenError) Error() string {
	switch {
	case e.Cycle:
		return fmt.Sprintf("policyspace %s is above itself: give one of those above it another parent", e.space)
	case e.Missing == e.space:
		return fmt.Sprintf("policyspace %s does not exist: create it", e.space)
	}
	return fmt.Sprintf(
		"policyspace %s is below %s, which does not exist: create it, or give the one below it another parent", e.space,
		e.Missing)
}

// Lineage returns the policyspaces from one up to its root. The error is a BrokenError.
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

// Path writes the way from the root to a policyspace.
func Path(lineage []*v1alpha1.PolicySpace) string {
	names := make([]string, 0, len(lineage))
	for _, space := range slices.Backward(lineage) {
		names = append(names, space.Name)
	}
	return strings.Join(names, "/")
}

// Below returns a policyspace and all below it. Those that are above themselves are below none.
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

// DepthLabel returns the key of the label that namespaces in a policyspace and below it have.
func DepthLabel(space string) string { return space + v1alpha1.DepthLabelSuffix }

// place is where a namespace is among policyspaces.
type place struct {
	// depths are its depth labels: how many steps up each of its policyspaces is.
	depths map[string]string
	// inTree reports whether a tree manages it.
	inTree bool
}

func placeOf(ns *corev1.Namespace) place { return place{OwnDepthLabels(ns), InTree(ns)} }

// placeFor returns where a namespace is to be. With an error, which is a BrokenError or a NotAdoptedError, it stays
// where it is: nothing is taken from it, or done to it, before that is settled. The namespaces of the system are in no
// policyspace.
func (f Forest) placeFor(ns *corev1.Namespace) (place, error) {
	space := ns.Labels[v1alpha1.PolicySpaceLabel]
	if space == "" || match.OfTheSystem(ns.Name) {
		return place{}, nil
	}
	lineage, err := f.Lineage(space)
	if err != nil {
		return placeOf(ns), err
	}
	tree := treeOf(lineage)
	if tree != "" && !MayBeInTree(ns) {
		return placeOf(ns), &NotAdoptedError{Namespace: ns.Name, Tree: tree}
	}
	own, want := placeOf(ns), place{depths: map[string]string{}, inTree: tree != ""}
	for i, above := range lineage {
		want.depths[DepthLabel(above.Name)] = strconv.Itoa(i + 1)
	}
	// Policyspaces that lose the label of their tree for a while do not make a tree's namespaces strangers.
	want.inTree = want.inTree || own.inTree && maps.Equal(own.depths, want.depths)
	return want, nil
}

// OwnDepthLabels returns the depth labels that a namespace has.
func OwnDepthLabels(ns *corev1.Namespace) map[string]string {
	own := map[string]string{}
	for key, value := range ns.Labels {
		if strings.HasSuffix(key, v1alpha1.DepthLabelSuffix) {
			own[key] = value
		}
	}
	return own
}

// Placed returns a namespace with the depth labels and the annotation policy.nstpl.dev/in-tree that it is to have:
// itself, if it has them. The error is a BrokenError or a NotAdoptedError.
func (f Forest) Placed(ns *corev1.Namespace) (*corev1.Namespace, error) {
	want, err := f.placeFor(ns)
	own := placeOf(ns)
	if maps.Equal(own.depths, want.depths) && own.inTree == want.inTree {
		return ns, err
	}
	placed := ns.DeepCopy()
	for key := range own.depths {
		delete(placed.Labels, key)
	}
	if placed.Labels == nil {
		placed.Labels = map[string]string{}
	}
	maps.Copy(placed.Labels, want.depths)
	delete(placed.Annotations, v1alpha1.InTreeAnnotation)
	if want.inTree {
		if placed.Annotations == nil {
			placed.Annotations = map[string]string{}
		}
		placed.Annotations[v1alpha1.InTreeAnnotation] = "true"
	}
	return placed, err
}

// SpacesOf returns the policyspaces that a namespace is in by its depth labels, the nearest first.
func SpacesOf(ns *corev1.Namespace) []string {
	type step struct {
		space string
		depth int
	}
	var steps []step
	for key, value := range OwnDepthLabels(ns) {
		if depth, err := strconv.Atoi(value); err == nil {
			steps = append(steps, step{strings.TrimSuffix(key, v1alpha1.DepthLabelSuffix), depth})
		}
	}
	slices.SortFunc(steps, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), strings.Compare(a.space, b.space))
	})
	spaces := make([]string, 0, len(steps))
	for _, s := range steps {
		spaces = append(spaces, s.space)
	}
	return spaces
}

// Charged returns the policyspaces that a namespace's usage counts in, the nearest first: those that it is in by its
// depth labels, those that it moves to, and those that one of them shares usage with. What a namespace uses that is in
// none yet is counted when it is placed. get returns a policyspace, or nil if it does not exist.
func Charged(ns *corev1.Namespace, get func(name string) (*v1alpha1.PolicySpace, error)) ([]string, error) {
	charged := SpacesOf(ns)
	if len(charged) == 0 {
		return nil, nil
	}
	add := func(name string) {
		if !slices.Contains(charged, name) {
			charged = append(charged, name)
		}
	}
	entering, err := LineageOf(ns, get)
	if err != nil {
		return nil, err
	}
	for _, name := range entering {
		add(name)
	}
	for _, name := range slices.Clone(charged) {
		space, err := get(name)
		if err != nil {
			return nil, err
		}
		if space == nil {
			continue
		}
		for _, share := range space.Status.SharedWith {
			add(share.Name)
		}
	}
	return charged, nil
}

// LineageOf returns the policyspaces that a namespace is to be in by its own label: none if it has no place because one
// does not exist, or is its own ancestor.
func LineageOf(ns *corev1.Namespace, get func(name string) (*v1alpha1.PolicySpace, error)) ([]string, error) {
	if match.OfTheSystem(ns.Name) {
		return nil, nil
	}
	var line []string
	for at := ns.Labels[v1alpha1.PolicySpaceLabel]; at != ""; {
		space, err := get(at)
		if err != nil || space == nil || slices.Contains(line, at) {
			return nil, err
		}
		line, at = append(line, at), space.Spec.Parent
	}
	return line, nil
}

// Replacement is a policyspace that a namespace leaves, and the one that it enters in its place.
type Replacement struct{ Old, New string }

// Replacements returns which policyspaces take the place of which when a namespace moves from some to others, the
// nearest first.
func Replacements(left, entered []string) []Replacement {
	stays := func(others []string) func(string) bool {
		return func(name string) bool { return slices.Contains(others, name) }
	}
	gone := slices.DeleteFunc(slices.Clone(left), stays(entered))
	come := slices.DeleteFunc(slices.Clone(entered), stays(left))
	var all []Replacement
	for i := range min(len(gone), len(come)) {
		all = append(all, Replacement{gone[i], come[i]})
	}
	return all
}
