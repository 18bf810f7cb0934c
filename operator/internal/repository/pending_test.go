package repository

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/engine/inventory"
)

// What the API server refuses is not pending: the record has room for what it may have created without an answer,
// however many objects a commit declares that it always refuses.
func TestRefusedCreationsAreNotPending(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	const root = "refused"
	repository := createRepository(t, admin, root)
	files := map[string]string{}
	for _, name := range []string{"a", "b"} {
		files[root+"-"+name+"/ns.yaml"] = "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name + "}}"
	}
	answers := true
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			isCreation := request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "namespaces/"+root+"-")
			if isCreation {
				request = request.Clone(request.Context())
				request.URL.RawQuery += "&fieldValidation=Unknown" // which the API server refuses
			}
			response, err := next.RoundTrip(request)
			if err == nil && isCreation && !answers {
				response.Body.Close()
				return nil, errEnded
			}
			return response, err
		})
	})
	synced, tree := newRepositories(t, config, nil), treeOf(t, root, "one", files)
	pendingAfter := func() map[inventory.ID]bool {
		o, err := synced.apply(t.Context(), repository, tree)
		require.NoError(t, err)
		require.Len(t, o.failures, 2)
		rec, err := readRecord(t.Context(), admin.Live, repository)
		require.NoError(t, err)
		return rec.pending
	}
	for range 2 {
		require.Empty(t, pendingAfter())
	}
	answers = false
	require.Len(t, pendingAfter(), 2)
	answers = true
	require.Len(t, pendingAfter(), 2) // the first requests may be executed yet
	f := synced.of(repository)
	require.Len(t, f.unanswered, 2)
	for id, since := range f.unanswered {
		f.unanswered[id] = since.Add(-pendingFor)
	}
	require.Empty(t, pendingAfter())
}

// The record has room for a limited number of creations. Those without get their turn, keep nothing else waiting, and
// are not tried again at once.
func TestCreationsWithoutRoomInTheRecordWait(t *testing.T) {
	t.Parallel()
	const length = 50
	name := func(i int) string { return fmt.Sprintf("%0*d", length-len("Namespace/"), i) }
	room := maxPendingSize / (length + 1 + uidSize)
	all, tried := 2*room, map[inventory.ID]bool{}
	pending := map[inventory.ID]bool{{Name: "of another tree"}: true}
	changed := object("changed")
	changed.SetLabels(map[string]string{"env": "prod"})
	role, replaced := object("role"), object("replaced")
	for kind, of := range map[string]*unstructured.Unstructured{"ClusterRole": role, "ClusterRoleBinding": replaced} {
		of.SetAPIVersion("rbac.authorization.k8s.io/v1")
		of.SetKind(kind)
	}
	for passes := 0; len(tried) < all; passes++ {
		require.Less(t, passes, 100)
		o := outcome{Plan: inventory.Plan{Applies: []inventory.Apply{
			{Declared: changed, Live: object("changed")}, {Declared: replaced, Replaced: replaced},
		}}}
		for i := range all {
			o.Applies = append(o.Applies, inventory.Apply{Declared: object(name(i))})
		}
		o.Applies = append(o.Applies, inventory.Apply{Declared: role})
		pending[declared(o.Applies[2])] = true
		o.limitPending(&record{pending: pending}, "tree")
		require.Empty(t, o.failures)
		require.Less(t, len(o.Held), all-room+10)
		require.Greater(t, len(o.Held), all-room)
		require.Len(t, o.Held, all+3-len(o.Applies))
		require.Equal(t, len(o.Held), o.remaining)
		require.Equal(t, retryFailed, o.wait(time.Hour))
		require.Equal(t, []*unstructured.Unstructured{changed, replaced, object(name(0)), role},
			[]*unstructured.Unstructured{
				o.Applies[0].Declared, o.Applies[1].Declared, o.Applies[2].Declared, o.Applies[len(o.Applies)-1].Declared,
			})
		for _, change := range o.Applies[2 : len(o.Applies)-1] {
			tried[declared(change)] = true
		}
	}
}

// A process may end before or after each of its writes: its successor completes the commit, and deletes all that was
// created and is no longer declared, and nothing else.
func TestEveryWriteMayBeTheLast(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	for run, completed := 0, false; !completed; run++ {
		for _, after := range []bool{false, true} {
			root := fmt.Sprintf("t%d-%t", run, after)
			completed = tryToEnd(t, cluster.RESTConfig(), admin, root, int64(run+1), after)
		}
	}
}

// tryToEnd has a process that ends at a write apply two commits, and a successor complete them. It reports whether all
// writes came before that one.
func tryToEnd(
	t *testing.T, config *rest.Config, admin *Repositories, root string, at int64, after bool,
) (completed bool) {
	t.Helper()
	repository := createRepository(t, admin, root)
	namespace := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name + "}}"
	}
	role := func(name string) string { return roleFile(root + "-" + name) }
	first := treeOf(t, root, "one", map[string]string{
		"a.yaml": role("a"), root + "-old/" + root + "-stays/ns.yaml": namespace("stays"),
		root + "-goes/ns.yaml": namespace("goes"),
	})
	second := treeOf(t, root, "two", map[string]string{
		"b.yaml": role("b"), root + "-new/" + root + "-stays/ns.yaml": namespace("stays"),
	})
	end := &ending{at: at, after: after}
	process := newRepositories(t, config, end)
	commits := []*vetted{first, second}
	for len(commits) > 0 {
		if o, err := process.apply(t.Context(), repository, commits[0]); err != nil || !o.isComplete() {
			break
		}
		commits = commits[1:]
	}
	require.Equal(t, end.isEnded.Load(), len(commits) > 0)
	successor := newRepositories(t, config, nil)
	for _, tree := range commits {
		o, err := successor.apply(t.Context(), repository, tree)
		require.NoError(t, err)
		require.Empty(t, o.failures, "%s", root)
		require.Empty(t, o.Conflicts, "%s", root)
		require.Empty(t, o.Waiting, "%s", root)
	}
	require.Equal(t, []string{
		"ClusterRole " + root + "-b", "Namespace " + root + "-goes, being deleted", "Namespace " + root + "-stays",
		"NamespaceTemplate " + root, "PolicySpace " + root, "PolicySpace " + root + "-new",
	}, liveOf(t, admin, root), "at write %d, after it: %t", at, after)
	return len(commits) == 0
}

// A request that a process has sent before it ended may be executed after its successor has applied another commit: even
// then, what it creates is deleted.
func TestACreationThatArrivesLateIsUndone(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	for root, between := range map[string][]string{"at-once": nil, "after-both": {"first"}} {
		repository := createRepository(t, admin, root)
		trees := map[string]*vetted{
			"first":  treeOf(t, root, "one", map[string]string{"a.yaml": roleFile(root + "-a")}),
			"second": treeOf(t, root, "two", map[string]string{"b.yaml": roleFile(root + "-b")}),
		}
		const creation = 2 // after that of the record
		process := newRepositories(t, cluster.RESTConfig(), &ending{at: creation})
		_, err := process.apply(t.Context(), repository, trees["first"])
		require.ErrorIs(t, err, errEnded)
		successor := newRepositories(t, cluster.RESTConfig(), nil)
		force := func(name string) {
			o, err := successor.apply(t.Context(), repository, trees[name])
			require.NoError(t, err)
			require.True(t, o.isComplete())
		}
		for _, name := range append(between, "second") {
			force(name)
		}
		late, err := newRepositories(t, cluster.RESTConfig(), nil).Cluster.as("")
		require.NoError(t, err)
		created, err := late.apply(t.Context(), inventory.Apply{Declared: trees["first"].declared[0]})
		require.NoError(t, err)
		require.Equal(t, root+"-a", created.GetName())
		require.Equal(t, []string{root}, successor.scopes.concernedBy(nil, created))
		force("second")
		require.Equal(t, []string{
			"ClusterRole " + root + "-b", "NamespaceTemplate " + root, "PolicySpace " + root,
		}, liveOf(t, admin, root))
	}
}

// While a creation is pending, an object of the same name that another client has created is not deleted, even if a user
// makes it look like one of the tree: by the name of the field manager, or by an apply of all that the tree declares.
func TestAnObjectOfOthersIsNotMistakenForAPendingOne(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	for root, manager := range map[string]string{"taken": "kubectl", "forged": fieldManager} {
		repository := createRepository(t, admin, root)
		first := treeOf(t, root, "one", map[string]string{"a.yaml": roleFile(root + "-a")})
		second := treeOf(t, root, "two", map[string]string{"b.yaml": roleFile(root + "-b")})
		_, err := newRepositories(t, cluster.RESTConfig(), &ending{at: 2}).apply(t.Context(), repository, first)
		require.ErrorIs(t, err, errEnded)
		successor := newRepositories(t, cluster.RESTConfig(), nil)
		foreign := first.declared[0].DeepCopy()
		foreign.SetAnnotations(nil) // admission does not let users set those of nstpl on namespaces
		objects, err := admin.Cluster.as("")
		require.NoError(t, err)
		roles, err := objects.resource(foreign.GroupVersionKind())
		require.NoError(t, err)
		foreign, err = roles.Apply(t.Context(), foreign.GetName(), foreign, metav1.ApplyOptions{FieldManager: manager})
		require.NoError(t, err)
		for range 2 {
			_, err := successor.apply(t.Context(), repository, second)
			require.NoError(t, err)
			current, err := roles.Get(t.Context(), foreign.GetName(), metav1.GetOptions{})
			require.NoError(t, err, root)
			require.Equal(t, foreign.GetUID(), current.GetUID())
			_, err = objects.apply(t.Context(), inventory.Apply{Declared: first.declared[0], Live: current})
			require.NoError(t, err)
		}
	}
}

// A PolicyRepository that is created again with the name of an earlier one has created nothing, so it deletes nothing
// of what the earlier one created.
func TestAPolicyRepositoryHasNoRecordOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	_, admin := newCluster(t)
	const root = "again"
	repository := createRepository(t, admin, root)
	role, ns := roleFile(root+"-role"), "{apiVersion: v1, kind: Namespace, metadata: {name: "+root+"-n}}"
	o, err := admin.apply(t.Context(), repository,
		treeOf(t, root, "one", map[string]string{"role.yaml": role, root + "-n/ns.yaml": ns}))
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	later := repository.DeepCopy()
	later.UID = "later"
	for range 2 { // the first one writes the record
		o, err = admin.apply(t.Context(), later, treeOf(t, root, "two", nil))
		require.NoError(t, err)
		require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
		require.Empty(t, o.Waiting)
		require.Equal(t, []string{
			"ClusterRole " + root + "-role", "Namespace " + root + "-n", "NamespaceTemplate " + root,
			"PolicySpace " + root,
		}, liveOf(t, admin, root))
	}
}

// Users who may add RoleBindings to one directory can have the permissions for their roles refused. The long names of
// these must not leave creations of others without room in every pass.
func TestPermissionsToBindKeepNoOtherCreationWaiting(t *testing.T) {
	t.Parallel()
	var applies []inventory.Apply
	for i := range 450 {
		role := object(fmt.Sprintf("%s%0253d", "nstpl-operator-tree-tree.", i))
		role.SetAPIVersion("rbac.authorization.k8s.io/v1")
		role.SetKind("ClusterRole")
		require.NoError(t, unstructured.SetNestedSlice(role.Object, []any{
			map[string]any{"resourceNames": []any{"r"}},
		}, "rules"))
		require.NotEmpty(t, inventory.BoundRoles(role))
		applies = append(applies, inventory.Apply{Declared: role})
	}
	space := inventory.Apply{Declared: object("other")}
	isCreated := func() bool {
		o := outcome{Plan: inventory.Plan{Applies: append(slices.Clone(applies), space)}}
		o.limitPending(&record{}, "tree")
		return slices.ContainsFunc(o.Applies, func(change inventory.Apply) bool { return declared(change) == declared(space) })
	}
	passes := 0
	for !isCreated() {
		passes++
		require.Less(t, passes, 100)
	}
}
