package hierarchy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// CountedIn returns the names of the policyspaces in which a namespace counts as a namespace, besides those above them:
// the one of its label, and the nearest of its depth labels if that is another one. It has not left that one while the
// one of the label does not exist, or is of a tree that does not adopt the namespace. System namespaces belong to no
// policyspace.
func CountedIn(ns *corev1.Namespace) []string {
	if match.IsSystemNamespace(ns.Name) {
		return nil
	}
	spaces := []string{ns.Labels[v1alpha1.PolicySpaceLabel]}
	if of := SpacesOf(ns); len(of) > 0 && of[0] != spaces[0] {
		spaces = append(spaces, of[0])
	}
	return spaces
}

// Charged returns the names of the policyspaces in which the usage of a namespace counts, the nearest first: those of
// its depth labels, those to which it moves, and those with which one of them shares usage. The usage of a namespace
// without depth labels does not count until it gets them. get returns a policyspace, or nil if it does not exist.
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

// LineageOf returns the names of the policyspaces to which a namespace belongs according to its policyspace label, the
// nearest first. It returns none if one of them does not exist or is its own ancestor.
func LineageOf(ns *corev1.Namespace, get func(name string) (*v1alpha1.PolicySpace, error)) ([]string, error) {
	if match.IsSystemNamespace(ns.Name) {
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

// DestinationOf returns the names of the policyspaces in which the operator puts a namespace, or keeps it, the nearest
// first: those of LineageOf, and none if one of them is of a tree that does not adopt the namespace. A namespace whose
// policyspace label is set, and that has no destination, keeps the depth labels that it has.
func DestinationOf(ns *corev1.Namespace, get func(name string) (*v1alpha1.PolicySpace, error)) ([]string, error) {
	return LineageOf(ns, func(name string) (*v1alpha1.PolicySpace, error) {
		space, err := get(name)
		if space != nil && space.Labels[v1alpha1.TreeLabel] != "" && !MayBeInTree(ns) {
			return nil, err
		}
		return space, err
	})
}

// Replacement is a policyspace that a namespace leaves, and the corresponding one that it enters.
type Replacement struct{ Old, New string }

// Replacements returns the corresponding policyspaces when a namespace leaves some and enters others. Both lists begin
// with the nearest.
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
