package policyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// namespaceIn returns a namespace with a policy space label, and depth labels of policy spaces, the nearest first.
func namespaceIn(name, space string, depths ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{v1alpha1.PolicySpaceLabel: space},
	}}
	for i, depth := range depths {
		ns.Labels[hierarchy.DepthLabel(depth)] = string(rune('1' + i))
	}
	return ns
}

func TestIndexPolicySpaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ns   *corev1.Namespace
		want []string
	}{
		"placed": {
			namespaceIn("a", "team", "team", "root"), []string{"inside/team", "inside/root", "labelled/team"},
		},
		"moves": {
			namespaceIn("a", "new", "team", "root"), []string{"inside/team", "inside/root", "labelled/new"},
		},
		"moves up": {
			namespaceIn("a", "root", "team", "root"), []string{"inside/team", "inside/root", "labelled/root"},
		},
		"not placed yet":   {namespaceIn("a", "team"), []string{"labelled/team"}},
		"leaves":           {namespaceIn("a", "", "root"), []string{"inside/root"}},
		"of Kubernetes":    {namespaceIn("kube-system", "new", "root"), []string{"inside/root", "labelled/new"}},
		"in no space ever": {&corev1.Namespace{}, nil},
	} {
		values, err := indexPolicySpaces(test.ns)
		require.NoError(t, err)
		require.Equal(t, test.want, values, name)
	}
	values, err := indexPolicySpaces(&corev1.Pod{})
	require.NoError(t, err)
	require.Nil(t, values)
}

func TestIsEntering(t *testing.T) {
	t.Parallel()
	root := hierarchy.DepthLabel("root")
	require.True(t, isEntering(namespaceIn("a", "team", "other"), root))
	require.False(t, isEntering(namespaceIn("a", "team", "team", "root"), root), "it has arrived")
	require.False(t, isEntering(namespaceIn("a", "team"), root), "it is new")
	require.False(t, isEntering(namespaceIn("kube-system", "team", "other"), root), "it is never in a policy space")
}

func TestMembersAreSortedAndUnique(t *testing.T) {
	t.Parallel()
	a, b := namespaceIn("a", "team"), namespaceIn("b", "team")
	require.Equal(t, []*corev1.Namespace{a, b}, sortedByName([]*corev1.Namespace{b, a, b}))
	require.Empty(t, sortedByName(nil))
}
