package policyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

func TestAPolicySpaceIsUsedByTheNamespacesInAndBelowIt(t *testing.T) {
	t.Parallel()
	var spaces []*v1alpha1.PolicySpace
	for name, parent := range map[string]string{"root": "", "a": "root", "b": "root", "below-a": "a", "other": ""} {
		spaces = append(spaces, &v1alpha1.PolicySpace{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpaceSpec{Parent: parent},
		})
	}
	forest := hierarchy.NewForest(spaces)
	in := func(space string, names ...string) (namespaces []metav1.PartialObjectMetadata) {
		for _, name := range names {
			namespaces = append(namespaces, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{v1alpha1.PolicySpaceLabel: space},
			}})
		}
		return namespaces
	}
	terminating := in("a", "ending")
	terminating[0].DeletionTimestamp = &metav1.Time{}
	const remedy = ": first delete them, or move them to another policyspace by the label policy.nstpl.dev/policyspace"
	for name, test := range map[string]struct {
		space      string
		namespaces []metav1.PartialObjectMetadata
		denial     string // empty if the policy space is not in use
	}{
		"unused":                      {"root", in("other", "x"), ""},
		"a namespace that is deleted": {"a", terminating, ""},
		"below another policy space":  {"b", in("a", "x"), ""},
		"a namespace in it":           {"a", in("a", "x"), `policyspace "a" is in use: 1 namespace is in it (x)` + remedy},
		"a policy space that the cache does not have": {
			"new", in("new", "x"), `policyspace "new" is in use: 1 namespace is in it (x)` + remedy,
		},
		"several": {
			"a", in("a", "z", "y", "x", "w"),
			`policyspace "a" is in use: 4 namespaces are in it (w, x, y and 1 more)` + remedy,
		},
		"below it": {
			"root", in("below-a", "x", "y"),
			`policyspace "root" is in use: 2 namespaces are in it or in policyspaces below it (a) (x, y)` + remedy,
		},
	} {
		use := newSpaceUse(forest, test.space, test.namespaces)
		if test.denial == "" {
			require.Empty(t, use.namespaces, name)
			continue
		}
		require.Equal(t, test.denial, use.denial(test.space), name)
	}
	use := newSpaceUse(forest, "root", in("below-a", "x", "y"))
	clear(use.namespaces)
	clear(use.children)
	require.Equal(t, `policyspace "root" is in use: 2 namespaces are in it or in policyspaces below it`+remedy,
		use.denial("root"), "names that the requester may not list")
}
