package repository

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// A tree leaves an object to another one that has the tree of its label now, whatever that one followed before its path
// was changed, and whatever a deleted one of its name declared: in between, it is unknown whether it declares the
// object, which is neither deleted nor given up. It is given up once the record of the other one has it.
func TestATreeIsDecidedByWhatTheOtherOneDeclaresNow(t *testing.T) {
	t.Parallel()
	declaring := treeOf(t, "b", "one", map[string]string{"role.yaml": roleFile("role")})
	other := treeOf(t, "b", "two", nil)
	before, elsewhere := *declaring, *other
	before.root, elsewhere.root = "c", "c"
	taken := map[types.UID]bool{"object": true}
	for name, test := range map[string]struct {
		known                *vetted
		of                   types.UID
		isUndecided, isGiven bool
		created              map[types.UID]bool
	}{
		"nothing is known of it":                             {nil, "", true, false, nil},
		"it declares the object":                             {declaring, "new", true, false, nil},
		"it has recorded the object":                         {declaring, "new", false, true, taken},
		"it does not declare the object":                     {other, "new", false, false, nil},
		"the path was changed, and the old tree declares it": {&before, "new", true, false, nil},
		"the path was changed, and the old tree does not":    {&elsewhere, "new", true, false, nil},
		"a deleted one of its name declared it":              {declaring, "old", true, false, nil},
		"a deleted one of its name did not declare it":       {other, "old", true, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &Repositories{}
			if test.known != nil {
				r.scopes.set(repositoryOf(test.of), test.known, &record{created: test.created})
			}
			object := newObject(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
			object.SetName("role")
			object.SetLabels(map[string]string{v1alpha1.TreeLabel: "b"})
			object.SetUID("object")
			id := render.IDOf(object)
			rec := &record{created: map[types.UID]bool{"object": true}}
			others := map[string]*v1alpha1.PolicyRepository{"b": repositoryOf("new")}
			undecided, takers := r.leave("leaving", others, rec, map[inventory.ID]*unstructured.Unstructured{id: object})
			require.Equal(t, test.isUndecided, undecided[id])
			declares := test.known == declaring && test.of == "new"
			require.Equal(t, declares && test.isUndecided, len(takers) == 1, "it is asked to take the object over")
			require.Equal(t, test.isGiven, !rec.created["object"])
		})
	}
}
