package policyspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/internal/watch"
)

// policySpaceIndex is the cache index of namespaces by policy space. A namespace has the value insideSpace plus the
// name for each policy space that its depth labels name, and the value labelledSpace plus the name of the policy space
// in its own label.
const (
	policySpaceIndex = "policyspace"
	insideSpace      = "inside/"
	labelledSpace    = "labelled/"
)

// members finds the cached namespaces of policy spaces, which callers must not change.
type members struct{ indexer toolscache.Indexer }

func newMembers(ctx context.Context, cached cache.Cache) (members, error) {
	informer, err := watch.Namespaces(ctx, cached)
	if err != nil {
		return members{}, err
	}
	indexers := toolscache.Indexers{policySpaceIndex: indexPolicySpaces}
	return members{informer.GetIndexer()}, informer.AddIndexers(indexers)
}

// inside returns the namespaces in and below a policy space by their depth labels.
func (m members) inside(space string) []*corev1.Namespace { return m.list(insideSpace + space) }

// labelled returns the namespaces whose label names a policy space.
func (m members) labelled(space string) []*corev1.Namespace { return m.list(labelledSpace + space) }

func (m members) list(value string) []*corev1.Namespace {
	objects, err := m.indexer.ByIndex(policySpaceIndex, value)
	if err != nil {
		return nil // only if there were no such index
	}
	namespaces := make([]*corev1.Namespace, 0, len(objects))
	for _, object := range objects {
		if ns, ok := object.(*corev1.Namespace); ok {
			namespaces = append(namespaces, ns)
		}
	}
	return namespaces
}

// indexPolicySpaces returns the values of a namespace in the policySpaceIndex.
func indexPolicySpaces(object any) ([]string, error) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return nil, nil
	}
	var values []string
	for _, space := range hierarchy.SpacesOf(ns) {
		values = append(values, insideSpace+space)
	}
	space := ns.Labels[v1alpha1.PolicySpaceLabel]
	if space != "" {
		values = append(values, labelledSpace+space)
	}
	return values, nil
}

// counted returns the namespaces that are counted in a policy space, by name: the namespaces in and below it, those
// that are about to move there, and those of the policy spaces with which it shares usage.
func (r *Spaces) counted(space *v1alpha1.PolicySpace) []*corev1.Namespace {
	var namespaces []*corev1.Namespace
	for _, name := range withShares(space) {
		namespaces = slices.Concat(namespaces, r.Members.inside(name), r.entering(name))
	}
	return sortedByName(namespaces)
}

// sortedByName returns each namespace once, in ascending order of the names. It changes the slice.
func sortedByName(namespaces []*corev1.Namespace) []*corev1.Namespace {
	slices.SortFunc(namespaces, func(a, b *corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(namespaces, func(a, b *corev1.Namespace) bool { return a.Name == b.Name })
}

// entering returns the namespaces that are about to move into or below a policy space.
func (r *Spaces) entering(space string) []*corev1.Namespace {
	r.placement.mu.Lock()
	forest := r.placement.forest
	r.placement.mu.Unlock()
	return r.Members.entering(forest, space)
}

// entering returns the namespaces that are about to move into or below a policy space of a hierarchy: the label of the
// namespace or the parent of a policy space above it has changed, and the depth labels have not been written yet. They
// never are for a namespace that a tree does not adopt.
func (m members) entering(forest hierarchy.Forest, space string) []*corev1.Namespace {
	lineage, _ := forest.Lineage(space) // empty if it is broken: then no namespace moves there
	if len(lineage) == 0 {
		return nil
	}
	var entering []*corev1.Namespace
	depthLabel := hierarchy.DepthLabel(space)
	for name := range forest.Below(space) {
		for _, ns := range m.labelled(name) {
			if isEntering(ns, depthLabel) {
				entering = append(entering, ns)
			}
		}
	}
	return entering
}

// isEntering reports whether a namespace, whose label names a policy space with a depth label or one below it, is
// elsewhere by its depth labels. A new namespace has none yet, and no usage that could move.
func isEntering(ns *corev1.Namespace, depthLabel string) bool {
	_, isPlaced := ns.Labels[depthLabel]
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
	read := map[string]*v1alpha1.PolicySpace{} // Charged asks for most of them twice, and each read is a copy
	return hierarchy.Charged(ns, func(name string) (*v1alpha1.PolicySpace, error) {
		if space, isRead := read[name]; isRead {
			return space, nil
		}
		space, err := getSpace(ctx, reader, name)
		if err == nil {
			read[name] = space
		}
		return space, err
	})
}

// gettingSpaces returns getSpace for the functions of package hierarchy.
func gettingSpaces(ctx context.Context, reader client.Reader) func(name string) (*v1alpha1.PolicySpace, error) {
	return func(name string) (*v1alpha1.PolicySpace, error) { return getSpace(ctx, reader, name) }
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
