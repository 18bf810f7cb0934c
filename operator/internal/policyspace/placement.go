package policyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// placement holds the hierarchy of policy spaces that namespaces are placed in.
type placement struct {
	mu       sync.Mutex
	isLoaded bool
	forest   hierarchy.Forest
	// version is the newest resourceVersion of a policy space in the forest.
	version string
}

// Placed returns a namespace with the depth labels for its place in the hierarchy. It returns ns itself if the labels
// are correct. The error is a hierarchy.BrokenError, a hierarchy.NotAdoptedError, or an error of reading the policy
// spaces.
func (r *Spaces) Placed(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
	p := &r.placement
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isLoaded {
		forest, version, err := readForest(ctx, r.Client)
		if err != nil {
			return nil, err
		}
		p.forest, p.version, p.isLoaded = forest, version, true
	}
	return p.forest.Placed(ns)
}

// AsOf returns the newest resourceVersion that Placed depends on: that of the namespace, or that of the policy space
// that changed last.
func (r *Spaces) AsOf(ns *corev1.Namespace) string {
	r.placement.mu.Lock()
	defer r.placement.mu.Unlock()
	return freshness.Newest(ns.ResourceVersion, r.placement.version)
}

// readForest returns the hierarchy of all policy spaces, and the newest of their resourceVersions.
func readForest(ctx context.Context, reader client.Reader) (forest hierarchy.Forest, version string, err error) {
	list := &v1alpha1.PolicySpaceList{}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return forest, "", err
	}
	spaces := make([]*v1alpha1.PolicySpace, 0, len(list.Items))
	for i := range list.Items {
		spaces = append(spaces, &list.Items[i])
		version = freshness.Newest(list.Items[i].ResourceVersion, version)
	}
	return hierarchy.NewForest(spaces), version, nil
}

// updateForest replaces the hierarchy by that of the cache if a policy space is elsewhere in it, or does not exist any
// more. It enqueues the policy spaces that changed, and the namespaces whose place changed. Each change of a policy
// space has a request of its own, so the others need no look.
func (r *Spaces) updateForest(ctx context.Context, name string) error {
	p := &r.placement
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isLoaded {
		space := &v1alpha1.PolicySpace{}
		err := r.Client.Get(ctx, client.ObjectKey{Name: name}, space, client.UnsafeDisableDeepCopy)
		switch before := p.forest.Get(name); {
		case client.IgnoreNotFound(err) != nil:
			return err
		case err != nil && before == nil, err == nil && before != nil && hasSameParentAndTree(before, space):
			return nil
		}
	}
	next, version, err := readForest(ctx, r.Client)
	if err != nil {
		return err
	}
	changed := changedSpaces(p.forest, next)
	var moved []string
	for _, space := range changed {
		for _, ns := range r.Members.labelled(space) {
			if isPlacedDifferently(ns, p.forest, next) {
				moved = append(moved, ns.Name)
			}
		}
	}
	r.enqueueAfter(usageDelay, changed...)
	p.forest, p.version, p.isLoaded = next, version, true
	r.Namespaces.Enqueue(queue.Rollout, 0, moved...)
	return nil
}

// hasSameParentAndTree reports whether two versions of a policy space have the same parent and tree.
func hasSameParentAndTree(a, b *v1alpha1.PolicySpace) bool {
	return a.Spec.Parent == b.Spec.Parent && a.Labels[v1alpha1.TreeLabel] == b.Labels[v1alpha1.TreeLabel]
}

// isPlacedDifferently reports whether the place of a namespace differs between two hierarchies, or why it has none.
func isPlacedDifferently(ns *corev1.Namespace, a, b hierarchy.Forest) bool {
	inA, errA := a.Placed(ns)
	inB, errB := b.Placed(ns)
	return !maps.Equal(hierarchy.OwnDepthLabels(inA), hierarchy.OwnDepthLabels(inB)) ||
		hierarchy.InTree(inA) != hierarchy.InTree(inB) || fmt.Sprint(errA) != fmt.Sprint(errB)
}

// changedSpaces returns the policy spaces whose ancestors, descendants or tree differ between two hierarchies.
func changedSpaces(a, b hierarchy.Forest) []string {
	changed := map[string]bool{}
	for _, name := range slices.Concat(a.Names(), b.Names()) {
		before, after := a.Get(name), b.Get(name)
		if before != nil && after != nil && hasSameParentAndTree(before, after) {
			continue
		}
		maps.Copy(changed, a.Below(name))
		maps.Copy(changed, b.Below(name))
		addAncestors(changed, a, before)
		addAncestors(changed, b, after)
	}
	return slices.Collect(maps.Keys(changed))
}

// addAncestors adds the ancestors of a policy space, or of none, in a hierarchy: they count its namespaces.
func addAncestors(names map[string]bool, forest hierarchy.Forest, space *v1alpha1.PolicySpace) {
	known := map[string]bool{}
	for space != nil && space.Spec.Parent != "" && !known[space.Spec.Parent] {
		known[space.Spec.Parent], names[space.Spec.Parent] = true, true
		space = forest.Get(space.Spec.Parent)
	}
}

// position is where a policy space is in the hierarchy.
type position struct {
	path string
	// broken is a hierarchy.BrokenError if the policy space has no path.
	broken error
	// namespaces is the number of namespaces in and below the policy space.
	namespaces  int
	hasChildren bool
}

// positionOf returns the position of a policy space in and below which there are so many namespaces.
func (r *Spaces) positionOf(space string, namespaces int) position {
	r.placement.mu.Lock()
	defer r.placement.mu.Unlock()
	lineage, broken := r.placement.forest.Lineage(space)
	return position{
		path: hierarchy.Path(lineage), broken: broken, namespaces: namespaces,
		hasChildren: len(r.placement.forest.Children(space)) > 0,
	}
}
