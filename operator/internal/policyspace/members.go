package policyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
)

// policySpaceIndex is the cache index of namespaces by policy space. A namespace has the value insideSpace plus the
// name for each policy space that its depth labels name, and the value labelledSpace plus the name of the policy space
// in its own label.
const (
	policySpaceIndex = "policyspace"
	insideSpace      = "inside/"
	labelledSpace    = "labelled/"
)

// indexPolicySpaces returns the values of a namespace in the policySpaceIndex.
func indexPolicySpaces(object client.Object) []string {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return nil
	}
	var values []string
	for _, space := range hierarchy.SpacesOf(ns) {
		values = append(values, insideSpace+space)
	}
	space := ns.Labels[v1alpha1.PolicySpaceLabel]
	if space != "" {
		values = append(values, labelledSpace+space)
	}
	return values
}

// listByPolicySpace returns the cached namespaces with a value in the policySpaceIndex. The caller must not change
// them.
func listByPolicySpace(ctx context.Context, cached client.Reader, value string) ([]*corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	if err := cached.List(ctx, list, client.MatchingFields{policySpaceIndex: value},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	namespaces := make([]*corev1.Namespace, 0, len(list.Items))
	for i := range list.Items {
		namespaces = append(namespaces, &list.Items[i])
	}
	return namespaces, nil
}

// inside returns the namespaces in and below a policy space by their depth labels.
func (r *Spaces) inside(ctx context.Context, space string) ([]*corev1.Namespace, error) {
	return listByPolicySpace(ctx, r.Client, insideSpace+space)
}

// members returns the namespaces that are counted in a policy space, by name: the namespaces in and below it, those
// that are about to move there, and those of the policy spaces with which it shares usage.
func (r *Spaces) members(ctx context.Context, space *v1alpha1.PolicySpace) ([]*corev1.Namespace, error) {
	var namespaces []*corev1.Namespace
	for _, name := range withShares(space) {
		inside, err := r.inside(ctx, name)
		if err != nil {
			return nil, err
		}
		entering, err := r.entering(ctx, name)
		if err != nil {
			return nil, err
		}
		namespaces = slices.Concat(namespaces, inside, entering)
	}
	return sortedByName(namespaces), nil
}

// sortedByName returns each namespace once, in ascending order of the names.
func sortedByName(namespaces []*corev1.Namespace) []*corev1.Namespace {
	byName := make(map[string]*corev1.Namespace, len(namespaces))
	for _, ns := range namespaces {
		byName[ns.Name] = ns
	}
	sorted := make([]*corev1.Namespace, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		sorted = append(sorted, byName[name])
	}
	return sorted
}

// entering returns the namespaces that are about to move into or below a policy space: the label of the namespace or
// the parent of a policy space above it has changed, and the depth labels have not been written yet.
func (r *Spaces) entering(ctx context.Context, space string) ([]*corev1.Namespace, error) {
	r.placement.mu.Lock()
	lineage, _ := r.placement.forest.Lineage(space) // empty if it is broken: then no namespace moves there
	below := r.placement.forest.Below(space)
	r.placement.mu.Unlock()
	if len(lineage) == 0 {
		return nil, nil
	}
	var entering []*corev1.Namespace
	for name := range below {
		namespaces, err := listByPolicySpace(ctx, r.Client, labelledSpace+name)
		if err != nil {
			return nil, err
		}
		for _, ns := range namespaces {
			if isEntering(ns, space) {
				entering = append(entering, ns)
			}
		}
	}
	return entering, nil
}

// isEntering reports whether a namespace, whose label names a policy space or one below it, is elsewhere by its depth
// labels. A new namespace has none yet, and no usage that could move.
func isEntering(ns *corev1.Namespace, space string) bool {
	_, isPlaced := ns.Labels[hierarchy.DepthLabel(space)]
	return !isPlaced && len(hierarchy.OwnDepthLabels(ns)) > 0 && !match.IsSystemNamespace(ns.Name)
}

// withShares returns the name of a policy space and of those with which it shares usage.
func withShares(space client.Object) []string {
	names := []string{space.GetName()}
	if space, ok := space.(*v1alpha1.PolicySpace); ok {
		for _, share := range space.Status.SharedWith {
			names = append(names, share.Name)
		}
	}
	return names
}

// chargedBy returns the policy spaces in which the usage of a namespace is counted, the nearest first.
func chargedBy(ctx context.Context, reader client.Reader, ns *corev1.Namespace) ([]string, error) {
	return hierarchy.Charged(ns, func(name string) (*v1alpha1.PolicySpace, error) {
		return getSpace(ctx, reader, name)
	})
}

// getSpace returns a policy space, or nil if it does not exist. The caller must not change it if reader is a cache.
func getSpace(ctx context.Context, reader client.Reader, name string) (*v1alpha1.PolicySpace, error) {
	space := &v1alpha1.PolicySpace{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, space, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		return space, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	}
	return nil, fmt.Errorf("read policyspace %s: %w", name, err)
}

// Lineage returns a policy space and its ancestors as a reader has them, the nearest first. It ends before one that
// does not exist, and before one that is its own ancestor. The result is read-only.
func Lineage(ctx context.Context, reader client.Reader, space string) ([]*v1alpha1.PolicySpace, error) {
	var lineage []*v1alpha1.PolicySpace
	for name := space; name != ""; {
		if slices.ContainsFunc(lineage, func(s *v1alpha1.PolicySpace) bool { return s.Name == name }) {
			break
		}
		found, err := getSpace(ctx, reader, name)
		if err != nil || found == nil {
			return lineage, err
		}
		lineage, name = append(lineage, found), found.Spec.Parent
	}
	return lineage, nil
}
