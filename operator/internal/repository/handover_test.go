package repository

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Two PolicyRepositories swap their paths, so that each declares what was created for the other one. What a later
// commit takes away is deleted, whenever that commit comes, and whenever a process ends. Namespaces stay.
func TestObjectsOfAnotherTreeAreDeletedWhenUndeclared(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	for root, rounds := range map[string]int{"swap-at-once": 0, "swap-soon": 1, "swap-later": 3} {
		ns := "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-n}}"
		files := map[string]string{
			"role.yaml": roleFile(root + "-role"), root + "-team/viewers.yaml": bindingFile("ann"),
			root + "-team/" + root + "-n/ns.yaml": ns,
		}
		first, second := treeOf(t, root, "one", files), treeOf(t, "other-"+root, "one", nil)
		one, two := createRepository(t, admin, root), createRepository(t, admin, "other-"+root)
		process := admin
		pass := func(repository *v1alpha1.PolicyRepository, tree *vetted) {
			t.Helper()
			o, err := process.apply(t.Context(), repository, tree)
			require.NoError(t, err)
			require.False(t, o.hasFailed(), "%v %v", o.failures, o.Conflicts)
		}
		pass(one, first)
		pass(two, second)
		require.Contains(t, liveOf(t, admin, root), "NamespaceTemplate "+root+"-team")

		one.Spec.Path, two.Spec.Path = two.Spec.Path, one.Spec.Path
		two.Spec.ExistingNamespaces = v1alpha1.ExistingAdopt
		require.NoError(t, admin.Client.Update(t.Context(), one))
		require.NoError(t, admin.Client.Update(t.Context(), two))
		pass(one, second)
		for range rounds {
			pass(two, first)
			pass(one, second)
		}
		process = newRepositories(t, cluster.RESTConfig(), nil)
		reduced := treeOf(t, root, "two", map[string]string{root + "-n/ns.yaml": ns})
		for range 3 {
			pass(two, reduced)
			pass(one, second)
		}
		assert.Equal(t, []string{"Namespace " + root + "-n", "NamespaceTemplate " + root, "PolicySpace " + root},
			liveOf(t, admin, root), root)
	}
}

// The tree that gives an object away forgets it at once when the other tree has recorded it, also if the process ended
// in between: afterwards, nothing that happens to either PolicyRepository has the wrong tree delete it.
func TestAnObjectThatIsHandedOverBelongsToOneTree(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	for _, root := range []string{"given", "undone", "restarted"} {
		taking := "to-" + root
		role := map[string]string{"role.yaml": roleFile(root + "-role")}
		giver, taker := createRepository(t, admin, root), createRepository(t, admin, taking)
		pass := func(repository *v1alpha1.PolicyRepository, files map[string]string) outcome {
			t.Helper()
			o, err := admin.apply(t.Context(), repository, treeOf(t, repository.Name, "one", files))
			require.NoError(t, err)
			require.Empty(t, o.failures)
			return o
		}
		pass(giver, role)
		handed := newObject(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
		handed.SetName(root + "-role")
		label := []byte(`{"metadata": {"labels": {"` + v1alpha1.TreeLabel + `": "` + taking + `"}}}`)
		require.NoError(t, admin.Client.Patch(t.Context(), handed, client.RawPatch(types.MergePatchType, label)))
		pass(giver, nil)
		require.Empty(t, admin.woken)
		pass(taker, role)
		require.Len(t, admin.woken, 1)
		require.Equal(t, root, (<-admin.woken).Object.GetName(), "the giver is reconciled at once")
		switch root {
		case "undone":
			o := pass(giver, role)
			require.Len(t, o.Conflicts, 1)
			require.Contains(t, o.Conflicts[0].Reason, "belongs to the tree "+taking)
		case "restarted":
			admin = newRepositories(t, cluster.RESTConfig(), nil)
			require.Len(t, pass(giver, nil).Undecided, 1)
			again := treeOf(t, taking, "one", role)
			for range 2 { // before the giver has passed
				_, err := admin.apply(t.Context(), taker, again)
				require.NoError(t, err)
			}
			require.Len(t, admin.woken, 1, "only a tree that was just read wakes others")
			require.Equal(t, root, (<-admin.woken).Object.GetName(), "the giver is reconciled at once")
		}
		require.Empty(t, pass(giver, nil).Undecided)
		require.Empty(t, admin.woken)
		require.NoError(t, admin.Client.Delete(t.Context(), taker))
		pass(giver, nil)
		require.Contains(t, liveOf(t, admin, root), "ClusterRole "+root+"-role")
	}
}

// Neither tree waits for its interval: whichever reads its commit last, the other one is reconciled, and only once.
func TestATreeWakesTheOneThatAHandoverWaitsFor(t *testing.T) {
	t.Parallel()
	_, admin := newCluster(t)
	roles := rbacv1.SchemeGroupVersion.WithKind("ClusterRole")
	namespaces := corev1.SchemeGroupVersion.WithKind("Namespace")
	for name, test := range map[string]struct {
		kind                    schema.GroupVersionKind
		isDeclared, isTakerLast bool
		want                    []string
	}{
		"role":       {roles, true, false, []string{"ClusterRole role-n"}},
		"namespace":  {namespaces, true, true, []string{"Namespace namespace-n"}},
		"undeclared": {roles, false, true, nil},
	} {
		ns := func(name string) string { return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}" }
		stays, files := map[string]string{name + "-kept/ns.yaml": ns(name + "-kept")}, map[string]string{}
		if test.kind == roles {
			files["role.yaml"] = roleFile(name + "-n")
		} else {
			files[name+"-n/ns.yaml"] = ns(name + "-n")
		}
		all := maps.Clone(stays)
		maps.Copy(all, files)
		if !test.isDeclared {
			files = nil
		}
		giver, taker := createRepository(t, admin, name+"-from"), createRepository(t, admin, name+"-to")
		pass := func(repository *v1alpha1.PolicyRepository, tree *vetted, wantWoken ...string) outcome {
			t.Helper()
			o, err := admin.apply(t.Context(), repository, tree)
			require.NoError(t, err)
			require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
			var woken []string
			for len(admin.woken) > 0 {
				woken = append(woken, (<-admin.woken).Object.GetName())
			}
			require.Equal(t, wantWoken, woken, name)
			return o
		}
		pass(giver, treeOf(t, giver.Name, "one", all))
		handed := newObject(test.kind)
		handed.SetName(name + "-n")
		label := []byte(`{"metadata": {"labels": {"` + v1alpha1.TreeLabel + `": "` + taker.Name + `"}}}`)
		require.NoError(t, admin.Client.Patch(t.Context(), handed, client.RawPatch(types.MergePatchType, label)))
		admin.rest(giver)
		given, taken := treeOf(t, giver.Name, "two", stays), treeOf(t, taker.Name, "one", files)
		if test.isTakerLast {
			require.Len(t, pass(giver, given).Undecided, 1, name)
			pass(taker, taken, giver.Name)
		} else {
			pass(taker, taken)
			require.Len(t, pass(giver, given, taker.Name).Undecided, 1, name)
			require.Len(t, pass(giver, given).Undecided, 1, name)
			pass(taker, taken, giver.Name)
		}
		require.Empty(t, pass(giver, given).Undecided, name)
		pass(taker, taken)
		require.Equal(t, test.want, liveOf(t, admin, name+"-n"), name)
	}
}

// What a tree takes over leaves the room in the record that only the root directory may take, and that a longer path of
// the tree needs.
func TestAHandoverDoesNotUseTheKeptRoom(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		free int
		want bool
	}{"it has room": {keptRoom + uidSize, true}, "it has only the room that is kept": {keptRoom + uidSize - 1, false}} {
		given := treeOf(t, "taking", "one", map[string]string{"role.yaml": roleFile("role")})
		giver, taker := repositoryOf("giver"), repositoryOf("taker")
		role := given.declared[0].DeepCopy()
		role.SetUID("role")
		r := &Repositories{}
		r.scopes.set(giver, &vetted{root: "giving"}, &record{created: map[types.UID]bool{"role": true}})
		r.scopes.set(taker, given, &record{})
		rec := &record{created: map[types.UID]bool{}, trees: map[string]bool{}}
		rec.trees[strings.Repeat("x", rec.room("taking")-1-test.free)] = true
		require.Equal(t, test.free, rec.room("taking"), name)
		r.accept(taker.UID, map[string]*v1alpha1.PolicyRepository{"giving": giver}, rec,
			map[inventory.ID]*unstructured.Unstructured{render.IDOf(role): role})
		require.Equal(t, test.want, rec.created["role"], name)
	}
}
