package hierarchy_test

import (
	"testing"
	"testing/fstest"
	"time"

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

// A namespace enters a tree when it is created in it or is adopted, moves freely then, and is a stranger again once it
// left.
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
		tree        string // that leaves it alone
	}{
		"created in it": {
			space: "team", initial: true, want: []string{"team", "1", "corp", "2"}, inTree: true,
		},
		"existed before": {space: "team", tree: "corp"},
		"existed in another space": {
			space: "team", depths: []string{"by-hand", "1"}, want: []string{"by-hand", "1"}, tree: "corp",
		},
		"existed in a space taken over": {
			space: "corp", depths: []string{"corp", "1"}, want: []string{"corp", "1"}, tree: "corp",
		},
		"a space of nobody below a tree": {space: "by-hand-in-corp", tree: "corp"},
		"adopted": {
			space: "team", annotations: map[string]string{v1alpha1.AdoptAnnotation: "true"},
			want: []string{"team", "1", "corp", "2"}, inTree: true,
		},
		"not quite adopted": {
			space: "team", annotations: map[string]string{v1alpha1.AdoptAnnotation: "yes"}, tree: "corp",
		},
		"moved within": {
			space: "corp", depths: []string{"team", "1", "corp", "2"}, annotations: inTree, want: []string{"corp", "1"},
			inTree: true,
		},
		"the root renamed": {
			space: "inc", depths: []string{"corp", "1"}, annotations: inTree, want: []string{"inc", "1"}, inTree: true,
		},
		"left": {depths: []string{"corp", "1"}, annotations: inTree},
		"left for another space": {space: "by-hand", depths: []string{"corp", "1"}, annotations: inTree,
			want: []string{"by-hand", "1"}},
		"its spaces lost their label": {
			space: "by-hand", depths: []string{"by-hand", "1"}, annotations: inTree, want: []string{"by-hand", "1"},
			inTree: true,
		},
		"its space is missing": {
			space: "gone", depths: []string{"corp", "1"}, annotations: inTree, want: []string{"corp", "1"},
			inTree: true,
		},
		"in no tree": {space: "by-hand", want: []string{"by-hand", "1"}},
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
			require.Equal(t, before, ns, "it is not changed")
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
		})
	}
}

// Where nothing marks new namespaces, managedFields tell who wrote in the second of the creation.
func TestCreatedInASpace(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	entry := func(manager string, after time.Duration, labels string) metav1.ManagedFieldsEntry {
		moment := metav1.NewTime(at.Add(after))
		return metav1.ManagedFieldsEntry{
			Manager: manager, Time: &moment,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata": {"f:labels": {` + labels + `}}}`),
		}
	}
	const space = `"f:policy.nstpl.dev/policyspace": {}`
	for name, test := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		creator string
		want    bool
	}{
		"in one request": {
			entries: []metav1.ManagedFieldsEntry{entry("kubectl", 0, space)}, want: true,
		},
		"and others wrote later": {entries: []metav1.ManagedFieldsEntry{
			entry("kubectl", 0, space), entry("other", time.Second, `"f:a": {}`),
		}, want: true},
		"labeled later": {entries: []metav1.ManagedFieldsEntry{entry("kubectl", time.Second, space)}},
		"labeled in the same second": {entries: []metav1.ManagedFieldsEntry{
			entry("create", 0, ""), entry("label", 0, space),
		}},
		"not labeled":      {entries: []metav1.ManagedFieldsEntry{entry("kubectl", 0, `"f:a": {}`)}},
		"nothing is known": {},
		"it would be marked if it was so": {entries: []metav1.ManagedFieldsEntry{entry("kubectl", 0, space)},
			creator: "jane"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "n", UID: "1", CreationTimestamp: at, ManagedFields: test.entries,
			}}
			if test.creator != "" {
				ns.Annotations = map[string]string{v1alpha1.CreatorAnnotation: test.creator}
			}
			require.Equal(t, test.want, hierarchy.MayBeInTree(ns))
		})
	}
}

// A folder consents to adoption only by the annotation for it, and a namespace's own policies are for the tree's
// namespace alone.
func TestCompiledNamespaces(t *testing.T) {
	t.Parallel()
	files := fooCorp()
	files["audit/namespace.yaml"] = &fstest.MapFile{Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: audit\n" +
		"  labels: {policy/namespace-initializing: 'true'}\n  annotations: {policy.nstpl.dev/in-tree: 'true'}\n")}
	objects := compile(t, files)
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
