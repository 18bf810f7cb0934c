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
