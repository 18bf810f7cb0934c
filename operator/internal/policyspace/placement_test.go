package policyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

func TestChangedSpaces(t *testing.T) {
	t.Parallel()
	space := func(name, parent, tree string) *v1alpha1.PolicySpace {
		s := &v1alpha1.PolicySpace{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpaceSpec{Parent: parent},
		}
		if tree != "" {
			s.Labels = map[string]string{v1alpha1.TreeLabel: tree}
		}
		return s
	}
	forest := func(spaces ...*v1alpha1.PolicySpace) hierarchy.Forest { return hierarchy.NewForest(spaces) }
	before := forest(space("root", "", ""), space("other", "", ""), space("team", "root", ""), space("sub", "team", ""))
	for name, test := range map[string]struct {
		after hierarchy.Forest
		want  []string
		moved bool
	}{
		"nothing": {before, nil, false},
		"moved": {
			forest(space("root", "", ""), space("other", "", ""), space("team", "other", ""), space("sub", "team", "")),
			[]string{"root", "other", "team", "sub"}, true,
		},
		"moved from below the root": {
			forest(space("root", "", ""), space("other", "", ""), space("team", "root", ""), space("sub", "other", "")),
			[]string{"root", "other", "team", "sub"}, true,
		},
		"deleted": {
			forest(space("root", "", ""), space("other", "", ""), space("sub", "team", "")),
			[]string{"root", "team", "sub"}, true,
		},
		"another root": {
			forest(space("root", "", ""), space("other", "", ""), space("team", "root", ""), space("sub", "team", ""),
				space("new", "", "")), []string{"new"}, false,
		},
		"in a tree": {
			forest(space("root", "", ""), space("other", "", "other"), space("team", "root", ""),
				space("sub", "team", "")),
			[]string{"other"}, false,
		},
	} {
		require.ElementsMatch(t, test.want, changedSpaces(before, test.after), name)
		ns := namespaceIn("a", "sub", "sub", "team", "root")
		require.Equal(t, test.moved, isPlacedDifferently(ns, before, test.after), name)
	}
}

// The condition of a namespace whose policy space has no path, or which is not adopted, says why.
func TestAnotherReasonForNoPathIsReported(t *testing.T) {
	t.Parallel()
	space := func(name, parent string, labels map[string]string) *v1alpha1.PolicySpace {
		return &v1alpha1.PolicySpace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: v1alpha1.PolicySpaceSpec{Parent: parent},
		}
	}
	forest := func(spaces ...*v1alpha1.PolicySpace) hierarchy.Forest { return hierarchy.NewForest(spaces) }
	tree := map[string]string{v1alpha1.TreeLabel: "root"}
	missing, orphaned := forest(), forest(space("team", "root", nil))
	notAdopted := forest(space("root", "", tree), space("team", "root", tree))
	ns := namespaceIn("a", "team")
	ns.UID = "1" // it exists
	require.False(t, isPlacedDifferently(ns, missing, missing))
	require.True(t, isPlacedDifferently(ns, missing, orphaned), "an ancestor is missing")
	require.True(t, isPlacedDifferently(ns, missing, notAdopted), "it is not adopted")
}
