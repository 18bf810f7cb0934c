package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/test/controlplane"
)

// errEnded is the error of all requests of a process that has ended.
var errEnded = errors.New("the process has ended")

// ending is a transport that ends at a write: before it is sent, or before its answer arrives. Then all requests fail.
type ending struct {
	http.RoundTripper
	at      int64
	after   bool
	writes  atomic.Int64
	isEnded atomic.Bool
}

func (e *ending) RoundTrip(request *http.Request) (*http.Response, error) {
	if e.isEnded.Load() {
		return nil, errEnded
	}
	if request.Method != http.MethodGet && e.writes.Add(1) == e.at {
		e.isEnded.Store(true)
		if e.after {
			if response, err := e.RoundTripper.RoundTrip(request); err == nil {
				response.Body.Close()
			}
		}
		return nil, errEnded
	}
	return e.RoundTripper.RoundTrip(request)
}

// newRepositories returns a controller without caches, as of a process that has just begun.
func newRepositories(t *testing.T, config *rest.Config, end *ending) *Repositories {
	t.Helper()
	config = rest.CopyConfig(config)
	if end != nil {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			end.RoundTripper = next
			return end
		})
	}
	api, err := client.New(config, client.Options{Scheme: testScheme(t)})
	require.NoError(t, err)
	return &Repositories{Client: api, Live: api, Cluster: &Cluster{Cached: api, Config: config}}
}

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(corev1.AddToScheme, rbacv1.AddToScheme, apiextensionsv1.AddToScheme,
		v1alpha1.AddToScheme)
	require.NoError(t, add.AddToScheme(scheme))
	return scheme
}

// treeOf returns the tree of a commit.
func treeOf(t *testing.T, root, commit string, files map[string]string) *vetted {
	t.Helper()
	in := fstest.MapFS{}
	for path, content := range files {
		in[path] = &fstest.MapFile{Data: []byte(content)}
	}
	result, err := hierarchy.Load(in, root)
	require.NoError(t, err)
	require.Empty(t, result.Violations)
	compiled, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
	require.NoError(t, err)
	declared, err := inventory.Declare(compiled)
	require.NoError(t, err)
	return &vetted{commit: commit, root: root, declared: declared}
}

// newCluster starts a control plane with the kinds of nstpl. It returns a controller for it that never ends.
func newCluster(t *testing.T) (*controlplane.Cluster, *Repositories) {
	t.Helper()
	cluster := controlplane.New(t)
	admin := newRepositories(t, cluster.RESTConfig(), nil)
	definitions, err := crd.All()
	require.NoError(t, err)
	for _, definition := range definitions {
		require.NoError(t, admin.Client.Create(t.Context(), definition))
	}
	require.NoError(t, admin.Client.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace},
	}))
	return cluster, admin
}

// createRepository creates a PolicyRepository whose tree has the same name.
func createRepository(t *testing.T, admin *Repositories, name string) *v1alpha1.PolicyRepository {
	t.Helper()
	repository := &v1alpha1.PolicyRepository{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PolicyRepositorySpec{Git: &v1alpha1.GitSource{URL: "https://example.com/a"}, Path: name},
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // until the kind is served
		assert.NoError(c, admin.Client.Create(t.Context(), repository))
	}, 30*time.Second, 50*time.Millisecond)
	return repository
}

func roleFile(name string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: " + name +
		"}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}"
}

// A pass makes a limited number of changes, so that a newer commit, a suspension and edits do not wait for a large
// commit. Nothing is deleted before all ClusterRoles are applied.
func TestAPassMakesALimitedNumberOfChanges(t *testing.T) {
	t.Parallel()
	_, admin := newCluster(t)
	const root = "limited"
	repository := createRepository(t, admin, root)
	force := func(tree *vetted) outcome {
		o, err := admin.apply(t.Context(), repository, tree)
		require.NoError(t, err)
		require.False(t, o.hasFailed())
		return o
	}
	require.True(t, force(treeOf(t, root, "one", map[string]string{"a.yaml": roleFile(root + "-old")})).isComplete())
	files := map[string]string{}
	for i := range maxChanges + 1 {
		files[fmt.Sprintf("%d.yaml", i)] = roleFile(fmt.Sprintf("%s-%d", root, i))
	}
	large := treeOf(t, root, "two", files)
	applied := 0
	for {
		o := force(large)
		applied += o.applied
		require.LessOrEqual(t, o.applied+o.deleted, maxChanges)
		if o.isComplete() {
			require.Equal(t, 1, o.deleted)
			break
		}
		require.Zero(t, o.deleted)
		require.Equal(t, maxChanges, o.applied)
	}
	require.Equal(t, maxChanges+1, applied)
	require.NotContains(t, liveOf(t, admin, root), "ClusterRole "+root+"-old")
}

// object returns a namespace.
func object(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

// What cannot be made again and again takes no room from what comes after it, however much that is. The order is kept:
// after the first change without room, none is made.
func TestChangesThatWereNotMadeNeedNoRoom(t *testing.T) {
	t.Parallel()
	deleted := object("deleted")
	for name, test := range map[string]struct {
		applies, unmade, wantApplies, wantDeletes, wantRemaining int
	}{
		"all have room":                {2, 0, 2, 1, 0},
		"one has none":                 {maxChanges + 1, 0, maxChanges, 1, 1},
		"that many were not made":      {maxChanges, maxChanges, maxChanges, 1, 0},
		"more were not made":           {3 * maxChanges, 3 * maxChanges, 3 * maxChanges, 1, 0},
		"some come after the unmade":   {2 * maxChanges, maxChanges + 1, 2 * maxChanges, 1, 0},
		"too many come after these":    {3 * maxChanges, maxChanges, 2 * maxChanges, 1, maxChanges},
		"the room is exactly taken up": {maxChanges, 0, maxChanges, 0, 1},
	} {
		var o outcome
		before := map[inventory.ID]int{}
		for i := range test.applies {
			declared := object(fmt.Sprint(i))
			o.Applies = append(o.Applies, inventory.Apply{Declared: declared})
			if i < test.unmade {
				before[inventory.IDOf(declared)] = 1
			}
		}
		o.Deletes = []*unstructured.Unstructured{deleted}
		o.limit(before)
		require.Len(t, o.Applies, test.wantApplies, name)
		require.Len(t, o.Deletes, test.wantDeletes, name)
		require.Equal(t, test.wantRemaining, o.remaining, name)
	}
	last := outcome{Plan: inventory.Plan{Deletes: []*unstructured.Unstructured{deleted}}}
	for i := range maxChanges + 1 {
		last.Applies = append(last.Applies, inventory.Apply{Declared: object(fmt.Sprint(i))})
	}
	newest := inventory.IDOf(last.Applies[maxChanges].Declared)
	last.limit(map[inventory.ID]int{newest: 0, inventory.IDOf(deleted): 0})
	require.Len(t, last.Applies, maxChanges+1)
	require.Len(t, last.Deletes, 1)
	for i := range maxRevocations {
		last.Deletes = append(last.Deletes, object(fmt.Sprint("d", i)))
	}
	last.limit(nil)
	require.Len(t, last.Applies, maxChanges)
	require.Len(t, last.Deletes, maxRevocations)
	require.Equal(t, 2, last.remaining)
}

// What a commit takes away does not wait until all is applied. What may be replaced by the rest does.
func TestALargeCommitDelaysNoRevocation(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	const root = "large"
	repository := createRepository(t, admin, root)
	file := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name + "}}"
	}
	o, err := admin.apply(t.Context(), repository, treeOf(t, root, "one", map[string]string{
		"role.yaml": roleFile(root + "-revoked"), root + "-renamed/ns.yaml": file("renamed"),
	}))
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	files := map[string]string{}
	for i := range maxChanges + 1 {
		files[fmt.Sprintf("%s-%d/ns.yaml", root, i)] = file(fmt.Sprint(i))
	}
	large := treeOf(t, root, "two", files)
	process := newRepositories(t, cluster.RESTConfig(), nil)
	o, err = process.apply(t.Context(), repository, large)
	require.NoError(t, err)
	require.Equal(t, 1, o.remaining)
	live := liveOf(t, process, root)
	require.NotContains(t, live, "ClusterRole "+root+"-revoked")
	require.Contains(t, live, "Namespace "+root+"-renamed")
	o, err = process.apply(t.Context(), repository, large)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	require.Contains(t, liveOf(t, process, root), "Namespace "+root+"-renamed, being deleted")
}

// transport is a RoundTripper.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// More failures than a pass makes changes keep neither revocations nor other objects back, nor what waits for them.
func TestManyFailuresKeepNothingElseBack(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	const root = "starved"
	repository := createRepository(t, admin, root)
	files := map[string]string{"role.yaml": roleFile(root + "-revoked")}
	o, err := admin.apply(t.Context(), repository, treeOf(t, root, "one", files))
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)

	delete(files, "role.yaml")
	for i := range maxChanges + 1 {
		name := fmt.Sprintf("%s-%d", root, i)
		in := name
		if i%2 == 0 { // is held
			in = root + "-space/" + name
		}
		files[in+"/ns.yaml"] = "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}"
	}
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "s/"+root+"-") {
				return nil, errEnded
			}
			return next.RoundTrip(request)
		})
	})
	refused := newRepositories(t, config, nil)
	tree := treeOf(t, root, "two", files)
	for range 2 {
		o, err = refused.apply(t.Context(), repository, tree)
		require.NoError(t, err)
	}
	require.Len(t, o.failures, 1+maxChanges/2)
	require.Len(t, o.Held, 1+maxChanges/2)
	require.Equal(t, []string{"NamespaceTemplate " + root, "PolicySpace " + root}, liveOf(t, refused, root))
}

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
	role := object("role")
	role.SetAPIVersion("rbac.authorization.k8s.io/v1")
	role.SetKind("ClusterRole")
	for passes := 0; len(tried) < all; passes++ {
		require.Less(t, passes, 100)
		o := outcome{Plan: inventory.Plan{Applies: []inventory.Apply{
			{Declared: changed, Live: object("changed")}, {Declared: object("replaced"), Replaced: object("replaced")},
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
		require.Equal(t, []*unstructured.Unstructured{changed, object("replaced"), object(name(0)), role},
			[]*unstructured.Unstructured{
				o.Applies[0].Declared, o.Applies[1].Declared, o.Applies[2].Declared, o.Applies[len(o.Applies)-1].Declared,
			})
		for _, change := range o.Applies[2 : len(o.Applies)-1] {
			tried[declared(change)] = true
		}
	}
}

// Requests that are not answered in time keep a pass busy for a limited time. All changes get their turn, and those
// that need others wait.
func TestAStepOfAPassEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := map[int]int{}
		var mu sync.Mutex
		changes := make([]int, 1000)
		unmade := map[inventory.ID]int{}
		idOf := func(i int) inventory.ID { return inventory.ID{Name: fmt.Sprint(i)} }
		for i := range changes {
			changes[i] = i
			unmade[idOf(i)] = 0
		}
		pass := func() (failed, waiting []int) {
			o := outcome{unmade: unmade}
			began := time.Now()
			failed, waiting = each(t.Context(), &o, changes, idOf, func(i int) error {
				time.Sleep(10 * time.Second) // as long as Kubernetes waits for a webhook
				mu.Lock()
				defer mu.Unlock()
				tries[i]++
				return errEnded
			})
			require.Less(t, time.Since(began), 2*stepTime)
			require.Len(t, o.failures, len(failed))
			require.Equal(t, len(waiting), o.remaining)
			require.Len(t, slices.Concat(failed, waiting), len(changes))
			return failed, waiting
		}
		for range 20 {
			failed, waiting := pass()
			require.NotEmpty(t, failed)
			require.NotEmpty(t, waiting)
		}
		most := slices.Max(slices.Collect(maps.Values(tries)))
		for i := range changes {
			require.Contains(t, []int{most - 1, most}, tries[i])
			require.Equal(t, tries[i], unmade[idOf(i)])
		}
	})
}

// What the time of a step did not suffice for keeps what it needs, as what failed does.
func TestWhatWaitsKeepsDeletions(t *testing.T) {
	t.Parallel()
	role := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name},
			"rules": []any{map[string]any{"resourceNames": []any{name[len(name)-1:]}}}, // which a bind role allows to bind
		}}
	}
	o := outcome{Plan: inventory.Plan{
		Held: []inventory.Apply{{Declared: role("waits")}}, Deletes: []*unstructured.Unstructured{role("old")},
	}}
	o.keepForFailures()
	require.Empty(t, o.Deletes)

	binds := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NamespaceTemplate",
		"metadata": map[string]any{"name": "waits"}, "spec": map[string]any{"templates": []any{map[string]any{
			"kind": "RoleBinding", "roleRef": map[string]any{"kind": "ClusterRole", "name": "x"},
		}}},
	}}
	o = outcome{Plan: inventory.Plan{
		Held: []inventory.Apply{{Declared: role("nstpl-operator-tree-a.y")}, {Declared: binds, Live: binds}},
		Deletes: []*unstructured.Unstructured{
			role("x"), role("nstpl-operator-tree-a.x"), role("nstpl-operator-tree-a.z"), role("old"),
		},
	}}
	o.keepForFailures()
	require.Equal(t, []*unstructured.Unstructured{role("nstpl-operator-tree-a.z"), role("old")}, o.Deletes,
		"nothing waits for the permission to bind y, and the template that stays needs x, and to bind it")
}

// No event tells of an object that was created and deleted while a watch was interrupted.
func TestAnObjectThatNoEventAnnouncedIsGone(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	createRepository(t, admin, "gap")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "gap"}}
	require.NoError(t, admin.Client.Create(t.Context(), role))
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(role)
	require.NoError(t, err)
	written := &unstructured.Unstructured{Object: fields}
	written.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	admin.Cluster.wrote(written)
	require.NoError(t, admin.Client.Delete(t.Context(), role))
	informers, err := cache.New(cluster.RESTConfig(), cache.Options{Scheme: testScheme(t)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- informers.Start(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	require.True(t, informers.WaitForCacheSync(ctx))
	admin.Cluster.Cached, admin.Cluster.Informers = informers, informers
	id := inventory.IDOf(written)
	all, err := admin.Cluster.live(t.Context())
	require.NoError(t, err)
	require.Nil(t, all[id], "the cache is complete up to the deletion")

	later := written.DeepCopy()
	later.SetResourceVersion("999999999999")
	admin.Cluster.wrote(later)
	all, err = admin.Cluster.live(t.Context())
	require.NoError(t, err)
	require.NotNil(t, all[id], "the cache does not have the write yet")
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

// liveOf returns the objects whose names begin with a prefix.
func liveOf(t *testing.T, admin *Repositories, prefix string) []string {
	t.Helper()
	live, err := admin.Cluster.live(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	var found []string
	for id, object := range live {
		if id.Name != prefix && !strings.HasPrefix(id.Name, prefix+"-") {
			continue
		}
		line := id.Kind + " " + id.Name
		if object.GetDeletionTimestamp() != nil {
			line += ", being deleted"
		}
		found = append(found, line)
	}
	slices.Sort(found)
	return found
}

// A namespace that cannot be created may be the new name of one that the commit no longer declares: that one stays, in
// its policyspaces, as does one that cannot move. The grants that the commit revokes end all the same.
func TestWhatStaysBecauseAnObjectFails(t *testing.T) {
	t.Parallel()
	namespace := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}"
	}
	const devs = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: devs}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, " +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: devs}]}"
	all := []string{
		"Namespace before", "PolicySpace below", "PolicySpace team",
		"NamespaceTemplate before", "NamespaceTemplate team",
	}
	for name, test := range map[string]struct {
		// after is the path of the namespace that replaces team/below/before, and failed the object that fails.
		after, failed, reason string
		exists                bool
		deletes, used         []string
	}{
		"an empty policyspace cannot move": {
			"new/empty", "empty", "denied", false, []string{all[0], all[1], all[3]}, []string{"team"},
		},
		"it cannot be created":        {"after", "after", "denied", false, all[3:], []string{"below", "team"}},
		"it lacks room":               {"after", "after", "exceeded (nstpl:quota-exceeded)", false, all, nil},
		"it cannot be changed":        {"after", "after", "denied", true, all, nil},
		"it cannot move":              {"new/before", "before", "denied", false, nil, []string{"below", "team"}},
		"its policyspace cannot move": {"new/below/before", "below", "denied", false, all[3:4], []string{"team"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := map[string]string{
				"team/below/before/ns.yaml": namespace("before"), "team/below/before/devs.yaml": devs,
				"team/devs.yaml": devs, "stays/ns.yaml": namespace("stays"),
			}
			after := map[string]string{
				test.after + "/ns.yaml": namespace(path.Base(test.after)), "stays/ns.yaml": namespace("stays"),
			}
			if test.failed == "empty" {
				before["team/empty/devs.yaml"] = devs
				after = map[string]string{"new/empty/devs.yaml": devs, "stays/ns.yaml": namespace("stays")}
			}
			if test.exists {
				before["after/ns.yaml"] = strings.Replace(namespace("after"), "name:", "labels: {a: b}, name:", 1)
			}
			state := inventory.State{Live: map[inventory.ID]*unstructured.Unstructured{}, Created: map[types.UID]bool{}}
			for _, object := range treeOf(t, "corp", "one", before).declared {
				id := inventory.IDOf(object)
				object.SetUID(types.UID(id.String()))
				state.Live[id], state.Created[object.GetUID()] = object, true
			}
			tree := treeOf(t, "corp", "two", after)
			o := outcome{Plan: inventory.NewPlan(tree.declared, state, inventory.Options{Tree: "corp"})}
			for _, change := range o.Applies {
				if id := declared(change); id.Name == test.failed {
					o.failures = append(o.failures, failure{id, errors.New(test.reason)})
				} else {
					o.stored = append(o.stored, stored{change.Declared, change.Declared})
				}
			}
			require.Len(t, o.failures, 1)
			o.keepForFailures()
			var deletes []string
			for _, object := range o.Deletes {
				deletes = append(deletes, object.GetKind()+" "+object.GetName())
			}
			require.Equal(t, test.deletes, deletes)
			require.Equal(t, test.used, o.Used)
		})
	}
}

// A namespace whose deletion is refused keeps what it has. What the commit revokes elsewhere ends.
func TestANamespaceThatCannotBeDeletedKeepsNothingElse(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	const root = "refused"
	repository := createRepository(t, admin, root)
	binding := "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: devs}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, " +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: devs}]}"
	namespace := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name + "}}"
	}
	o, err := admin.apply(t.Context(), repository, treeOf(t, root, "one", map[string]string{
		root + "-team/devs.yaml": binding, root + "-team/" + root + "-goes/ns.yaml": namespace("goes"),
		root + "-other/devs.yaml": binding, root + "-other/" + root + "-stays/ns.yaml": namespace("stays"),
	}))
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodDelete && strings.HasSuffix(request.URL.Path, "/namespaces/"+root+"-goes") {
				return nil, errEnded
			}
			return next.RoundTrip(request)
		})
	})
	refused := newRepositories(t, config, nil)
	o, err = refused.apply(t.Context(), repository, treeOf(t, root, "two", map[string]string{
		root + "-stays/ns.yaml": namespace("stays"),
	}))
	require.NoError(t, err)
	require.Len(t, o.failures, 1)
	require.Equal(t, []string{
		"Namespace " + root + "-goes", "Namespace " + root + "-stays", "NamespaceTemplate " + root,
		"NamespaceTemplate " + root + "-team", "PolicySpace " + root, "PolicySpace " + root + "-team",
	}, liveOf(t, refused, root))
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

// Every author of templates may create one with a name that a tree is about to declare.
func TestAConflictHoldsBackOnlyWhatNeedsTheObject(t *testing.T) {
	t.Parallel()
	_, admin := newCluster(t)
	const root = "squatted"
	repository := createRepository(t, admin, root)
	binding := func(name, role string) string {
		return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: " + name +
			"}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role +
			"}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]}"
	}
	namespace := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name + "}}"
	}
	before := treeOf(t, root, "one", map[string]string{
		"role.yaml": roleFile(root + "-moved"), "revoked.yaml": binding("revoked", "view"),
		root + "-team/moved.yaml":   binding("moved", root+"-moved"),
		root + "-team/revoked.yaml": binding("revoked", "edit"), root + "-team/" + root + "-n/ns.yaml": namespace("n"),
		root + "-ended/revoked.yaml": binding("revoked", "edit"), root + "-ended/" + root + "-e/ns.yaml": namespace("e"),
	})
	after := treeOf(t, root, "two", map[string]string{
		root + "-new/" + root + "-n/ns.yaml": namespace("n"), root + "-new/" + root + "-e/ns.yaml": namespace("e"),
		root + "-new/moved.yaml": binding("moved", root+"-moved"),
	})
	o, err := admin.apply(t.Context(), repository, before)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	squatter := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: root + "-new"}}
	squatter.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"is": "none"}}
	require.NoError(t, admin.Client.Create(t.Context(), squatter))
	o, err = admin.apply(t.Context(), repository, after)
	require.NoError(t, err)
	require.Empty(t, o.failures)
	require.Len(t, o.Conflicts, 1)
	template := &v1alpha1.NamespaceTemplate{}
	require.NoError(t, admin.Live.Get(t.Context(), client.ObjectKey{Name: root}, template))
	require.Empty(t, template.Spec.Templates, "the revocation at the root does not wait")
	require.Equal(t, []string{
		"ClusterRole " + root + "-moved", "Namespace " + root + "-e", "Namespace " + root + "-n",
		"NamespaceTemplate " + root, "NamespaceTemplate " + root + "-ended", "NamespaceTemplate " + root + "-new",
		"NamespaceTemplate " + root + "-team", "PolicySpace " + root, "PolicySpace " + root + "-ended",
		"PolicySpace " + root + "-team",
	}, liveOf(t, admin, root), "the namespaces keep what they have until they move")

	require.NoError(t, admin.Client.Delete(t.Context(), squatter))
	o, err = admin.apply(t.Context(), repository, after)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	require.Equal(t, []string{
		"Namespace " + root + "-e", "Namespace " + root + "-n", "NamespaceTemplate " + root,
		"NamespaceTemplate " + root + "-new", "PolicySpace " + root, "PolicySpace " + root + "-new",
	}, liveOf(t, admin, root))
}
