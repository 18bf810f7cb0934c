package repository

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

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
				before[render.IDOf(declared)] = 1
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
	newest := render.IDOf(last.Applies[maxChanges].Declared)
	last.limit(map[inventory.ID]int{newest: 0, render.IDOf(deleted): 0})
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
