package hierarchy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

func ofTree(space *v1alpha1.PolicySpace, tree string) *v1alpha1.PolicySpace {
	space.Labels = map[string]string{v1alpha1.TreeLabel: tree}
	return space
}

// A namespace is in a tree if it was created in it or adopted. From then on it may move within it. Once it has left the
// tree, it must be adopted again.
func TestPlacedInATree(t *testing.T) {
	t.Parallel()
	forest := hierarchy.NewForest([]*v1alpha1.PolicySpace{
		ofTree(space("corp", ""), "corp"), ofTree(space("team", "corp"), "corp"), space("by-hand-in-corp", "corp"),
		ofTree(space("inc", ""), "inc"), space("by-hand", ""),
	})
	inTree := map[string]string{v1alpha1.InTreeAnnotation: "true"}
	for name, test := range map[string]struct {
		space       string
		depths      []string // pairs of a space and its depth, before
		annotations map[string]string
		initial     bool
		want        []string
		inTree      bool
		tree        string // the tree that does not manage it
	}{
		"a namespace that is created in the tree is in it": {
			space: "team", initial: true, want: []string{"team", "1", "corp", "2"}, inTree: true,
		},
		"a namespace that existed before is not in the tree": {space: "team", tree: "corp"},
		"a namespace that existed in another policyspace stays there": {
			space: "team", depths: []string{"by-hand", "1"}, want: []string{"by-hand", "1"}, tree: "corp",
		},
		"a namespace whose policyspace joins the tree is not in the tree": {
			space: "corp", depths: []string{"corp", "1"}, want: []string{"corp", "1"}, tree: "corp",
		},
		"a policyspace below a tree belongs to the tree": {space: "by-hand-in-corp", tree: "corp"},
		"an adopted namespace is in the tree": {
			space: "team", annotations: map[string]string{v1alpha1.AdoptAnnotation: "true"},
			want: []string{"team", "1", "corp", "2"}, inTree: true,
		},
		"an annotation with another value does not adopt": {
			space: "team", annotations: map[string]string{v1alpha1.AdoptAnnotation: "yes"}, tree: "corp",
		},
		"a namespace may move within the tree": {
			space: "corp", depths: []string{"team", "1", "corp", "2"}, annotations: inTree, want: []string{"corp", "1"},
			inTree: true,
		},
		"a namespace stays in the tree when the root is renamed": {
			space: "inc", depths: []string{"corp", "1"}, annotations: inTree, want: []string{"inc", "1"}, inTree: true,
		},
		"a namespace that left the tree is not in it": {depths: []string{"corp", "1"}, annotations: inTree},
		"a namespace that moved to another policyspace is not in the tree": {space: "by-hand",
			depths: []string{"corp", "1"}, annotations: inTree,
			want: []string{"by-hand", "1"}},
		"a namespace stays in the tree when its policyspaces lose the label": {
			space: "by-hand", depths: []string{"by-hand", "1"}, annotations: inTree, want: []string{"by-hand", "1"},
			inTree: true,
		},
		"a namespace stays in the tree while its policyspace does not exist": {
			space: "gone", depths: []string{"corp", "1"}, annotations: inTree, want: []string{"corp", "1"},
			inTree: true,
		},
		"a policyspace outside of trees needs no adoption": {space: "by-hand", want: []string{"by-hand", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "n", UID: "1", Labels: map[string]string{v1alpha1.PolicySpaceLabel: test.space},
				Annotations: test.annotations,
			}}
			for i := 0; i < len(test.depths); i += 2 {
				ns.Labels[hierarchy.DepthLabel(test.depths[i])] = test.depths[i+1]
			}
			if test.initial {
				ns.Labels[v1alpha1.InitializingLabel] = "true"
			}
			before := ns.DeepCopy()
			placed, err := forest.Placed(ns)
			require.Equal(t, before, ns, "Placed does not change the namespace")
			if test.tree != "" {
				require.Equal(t, &hierarchy.NotAdoptedError{Namespace: "n", Tree: test.tree}, err)
			}
			want := map[string]string{}
			for i := 0; i < len(test.want); i += 2 {
				want[hierarchy.DepthLabel(test.want[i])] = test.want[i+1]
			}
			require.Equal(t, want, hierarchy.OwnDepthLabels(placed))
			require.Equal(t, test.inTree, hierarchy.InTree(placed))
			again, _ := forest.Placed(placed)
			require.Same(t, placed, again)
			destination, errRead := hierarchy.DestinationOf(ns, func(name string) (*v1alpha1.PolicySpace, error) {
				return forest.Get(name), nil
			})
			require.NoError(t, errRead)
			if err != nil {
				require.Empty(t, destination)
			} else {
				require.Equal(t, hierarchy.SpacesOf(placed), append([]string{}, destination...))
			}
		})
	}
}

// Every user who may change a namespace may write its managedFields, with any time.
func TestManagedFieldsDoNotAdopt(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1", CreationTimestamp: metav1.Unix(1, 0)}}
	ns.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl-create", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.Unix(1, 0)),
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata": {"f:labels": {"f:policy.nstpl.dev/policyspace": {}}}}`),
	}}
	require.False(t, hierarchy.MayBeInTree(ns))
}

// The template of a namespace selects it only while it is in the tree.
func TestCompiledNamespacesDoNotConsentToAdoption(t *testing.T) {
	t.Parallel()
	objects := compile(t, fooCorp())
	for _, object := range objects {
		require.NotContains(t, object.GetAnnotations(), v1alpha1.InTreeAnnotation)
		require.NotContains(t, object.GetAnnotations(), v1alpha1.AdoptAnnotation)
		require.NotContains(t, object.GetLabels(), v1alpha1.InitializingLabel)
		if object.GetKind() == "NamespaceTemplate" && object.GetName() == "shipping-dev" {
			require.Equal(t, &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: "shipping-dev"},
				MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: hierarchy.DepthLabel("foo-corp"), Operator: metav1.LabelSelectorOpExists,
				}},
			}, as[v1alpha1.NamespaceTemplate](t, object).Spec.Namespaces.LabelSelector)
		}
	}
	hierarchy.Adopt(objects)
	for _, object := range objects {
		_, adopts := object.GetAnnotations()[v1alpha1.AdoptAnnotation]
		require.Equal(t, object.GetKind() == "Namespace", adopts)
	}
}
