package hierarchy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// DepthLabel returns the key of the label that all namespaces below a policyspace have. Its value is the distance: 1 in
// the policyspace itself, 2 in its children, and so on.
func DepthLabel(space string) string { return space + v1alpha1.DepthLabelSuffix }

// OwnDepthLabels returns the depth labels of a namespace.
func OwnDepthLabels(ns *corev1.Namespace) map[string]string {
	own := map[string]string{}
	for key, value := range ns.Labels {
		if strings.HasSuffix(key, v1alpha1.DepthLabelSuffix) {
			own[key] = value
		}
	}
	return own
}

// SpacesOf returns the names of the policyspaces to which a namespace belongs according to its depth labels, the
// nearest first.
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

// placement is the position of a namespace in the hierarchy.
type placement struct {
	// depths are its depth labels.
	depths map[string]string
	// inTree reports whether a tree manages it.
	inTree bool
}

func placementOf(ns *corev1.Namespace) placement { return placement{OwnDepthLabels(ns), InTree(ns)} }

// wantedPlacement returns the placement of a namespace according to its policyspace label. With an error, which is a
// *BrokenError or a *NotAdoptedError, it returns the current placement: objects in the namespace must not be deleted
// until the error is resolved. System namespaces belong to no policyspace.
func (f Forest) wantedPlacement(ns *corev1.Namespace) (placement, error) {
	space := ns.Labels[v1alpha1.PolicySpaceLabel]
	if space == "" || match.IsSystemNamespace(ns.Name) {
		return placement{}, nil
	}
	lineage, err := f.Lineage(space)
	if err != nil {
		return placementOf(ns), err
	}
	tree := treeName(lineage)
	if tree != "" && !MayBeInTree(ns) {
		return placementOf(ns), &NotAdoptedError{Namespace: ns.Name, Tree: tree}
	}
	own, want := placementOf(ns), placement{depths: map[string]string{}, inTree: tree != ""}
	for i, above := range lineage {
		want.depths[DepthLabel(above.Name)] = strconv.Itoa(i + 1)
	}
	// A namespace stays in its tree while the policyspaces lose the label of the tree for a while.
	want.inTree = want.inTree || own.inTree && maps.Equal(own.depths, want.depths)
	return want, nil
}

// Placed returns a namespace with the depth labels and the annotation policy.nstpl.dev/in-tree that belong to its
// policyspace, and the namespace itself if it already has them. With an error, which is a *BrokenError or a
// *NotAdoptedError, the namespace keeps those that it has.
func (f Forest) Placed(ns *corev1.Namespace) (*corev1.Namespace, error) {
	want, err := f.wantedPlacement(ns)
	own := placementOf(ns)
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
		metav1.SetMetaDataAnnotation(&placed.ObjectMeta, v1alpha1.InTreeAnnotation, "true")
	}
	return placed, err
}
