package repository

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/test/marks"
)

// A deletion waits for a confirmation, and a person protects one of the namespaces. A process may end before or after
// each of its writes about that commit, and about an empty one: its successor deletes nothing. The same holds once the
// deletion is confirmed: the successor completes it, and the confirmation is used up.
func TestADeletionWaitsWhicheverWriteIsTheLast(t *testing.T) {
	marks.Thorough(t)
	cluster, admin := newCluster(t)
	for run, completed := 0, false; !completed; run++ {
		for _, after := range []bool{false, true} {
			root := fmt.Sprintf("w%d-%t", run, after)
			completed = tryToEndWhileDeletionsWait(t, cluster.RESTConfig(), admin, root, int64(run+1), after)
		}
	}
}

// tryToEndWhileDeletionsWait reports whether all writes came before the one at which a process ends.
func tryToEndWhileDeletionsWait(
	t *testing.T, config *rest.Config, admin *Repositories, root string, at int64, after bool,
) (completed bool) {
	t.Helper()
	repository := createRepository(t, admin, root)
	name := func(short string) string { return root + "-" + short }
	files := func(shorts ...string) map[string]string {
		all := map[string]string{}
		for _, short := range shorts {
			all[name(short)+"/ns.yaml"] = "{apiVersion: v1, kind: Namespace, metadata: {name: " + name(short) + "}}"
		}
		return all
	}
	left := files("left")
	first := treeOf(t, root, "one", files("a", "b", "c", "left"))
	second, empty := treeOf(t, root, "two", left), treeOf(t, root, "three", left)
	end := &ending{at: at, after: after}
	process := newRepositories(t, config, end)
	successor := newRepositories(t, config, nil)
	// apply has the process apply a tree, or its successor.
	apply := func(tree *vetted) outcome {
		t.Helper()
		get := types.NamespacedName{Name: root}
		require.NoError(t, admin.Client.Get(t.Context(), get, repository))
		if !end.isEnded.Load() {
			if o, err := process.apply(t.Context(), repository, tree); err == nil && o.isComplete() {
				return o
			}
			require.True(t, end.isEnded.Load())
			require.NoError(t, admin.Client.Get(t.Context(), get, repository))
		}
		o, err := successor.apply(t.Context(), repository, tree)
		require.NoError(t, err)
		require.True(t, o.isComplete())
		return o
	}
	isDeleted := func(short string) bool {
		t.Helper()
		ns := &corev1.Namespace{}
		require.NoError(t, admin.Live.Get(t.Context(), types.NamespacedName{Name: name(short)}, ns))
		return ns.DeletionTimestamp != nil
	}
	apply(first)
	require.Equal(t, []string{name("a"), name("b"), name("c")}, apply(second).Waiting)
	protect := client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"policy.nstpl.dev/deletion-protection": "true"}}}`))
	require.NoError(t, admin.Client.Patch(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name("a")}}, protect))
	require.NoError(t, admin.Client.Delete(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name("b")}}))
	for _, tree := range []*vetted{second, empty} {
		require.Equal(t, []string{name("c")}, apply(tree).Waiting)
		require.False(t, isDeleted("c"))
	}
	asked := apply(empty)
	reportOutcome(&repository.Status, empty, asked, time.Now())
	require.NoError(t, admin.Client.Status().Update(t.Context(), repository))
	repository.Annotations = map[string]string{v1alpha1.ConfirmedCommitAnnotation: "three"}
	require.NoError(t, admin.Client.Update(t.Context(), repository))
	require.Empty(t, apply(empty).Waiting)
	require.False(t, isDeleted("a"))
	require.True(t, isDeleted("c"))
	require.NoError(t, admin.Client.Get(t.Context(), client.ObjectKeyFromObject(repository), repository))
	require.Empty(t, repository.Annotations)
	return !end.isEnded.Load()
}

// The record may name other namespaces than the status, if a process ended between its writes.
func TestAConfirmationIsForTheNamespacesOfTheStatus(t *testing.T) {
	t.Parallel()
	rec := &record{deletions: inventory.Deletions{Waiting: map[types.UID]bool{"a": true, "b": true}}}
	repository := &v1alpha1.PolicyRepository{}
	repository.Annotations = map[string]string{v1alpha1.ConfirmedCommitAnnotation: "one"}
	require.False(t, isConfirmed(repository, "one", rec), "no status")
	shown := &v1alpha1.PendingDeletions{Commit: "one", Digest: rec.deletions.Digest()}
	repository.Status.PendingDeletions = shown
	require.True(t, isConfirmed(repository, "one", rec))
	require.False(t, isConfirmed(repository, "two", rec))
	shown.Commit = "two"
	require.False(t, isConfirmed(repository, "one", rec), "shown for another commit")
	shown.Commit, rec.deletions.Waiting["c"] = "one", true
	require.False(t, isConfirmed(repository, "one", rec), "another namespace waits")
	shown.Digest = ""
	require.False(t, isConfirmed(repository, "one", rec), "a status of an earlier version")
}

// A confirmation of namespaces of which the status did not have all is removed, and an Event says that it deletes nothing.
func TestAVoidConfirmationHasAnEvent(t *testing.T) {
	t.Parallel()
	_, process := newCluster(t)
	recorder := events.NewFakeRecorder(10)
	process.Recorder = recorder
	repository := createRepository(t, process, "void")
	files := map[string]string{}
	for _, name := range []string{"void-a", "void-b"} {
		files[name+"/ns.yaml"] = "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}"
	}
	for _, tree := range []*vetted{treeOf(t, "void", "one", files), treeOf(t, "void", "two", nil)} {
		_, err := process.apply(t.Context(), repository, tree)
		require.NoError(t, err)
	}
	repository.Status.PendingDeletions = &v1alpha1.PendingDeletions{Commit: "two", Digest: "of others"}
	repository.Annotations = map[string]string{v1alpha1.ConfirmedCommitAnnotation: "two"}
	o, err := process.apply(t.Context(), repository, treeOf(t, "void", "two", nil))
	require.NoError(t, err)
	require.Equal(t, []string{"void-a", "void-b"}, o.Waiting)
	require.Empty(t, repository.Annotations)
	require.Len(t, recorder.Events, 1)
	require.Contains(t, <-recorder.Events, "the confirmation of commit two deletes nothing")
}

// A confirmation of deletions is void once spec.path was changed, for which the status has not listed them. One of a
// rollback is about a commit, and holds until the record has it.
func TestAChangedPathKeepsTheConfirmationOfARollback(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	repository := createRepository(t, admin, "moved")
	repository.Annotations = map[string]string{
		v1alpha1.ConfirmedCommitAnnotation: "one", v1alpha1.ConfirmedRollbackAnnotation: "one",
	}
	require.NoError(t, admin.Client.Update(t.Context(), repository))
	repository.Status.Path = "before"
	tree := treeOf(t, "moved", "one", map[string]string{"a.yaml": roleFile("moved-a")})
	tree.path = "after"
	const ofRecord = 2 // after the removal of the confirmation
	process := newRepositories(t, cluster.RESTConfig(), &ending{at: ofRecord})
	recorder := events.NewFakeRecorder(10)
	process.Recorder = recorder
	_, err := process.bring(t.Context(), repository, answer{tree: tree}, nil, &v1alpha1.PolicyRepositoryStatus{})
	require.ErrorIs(t, err, errEnded)
	require.Len(t, recorder.Events, 1, "that the confirmation is void")
	require.NoError(t, admin.Client.Get(t.Context(), client.ObjectKeyFromObject(repository), repository))
	require.Equal(t, map[string]string{v1alpha1.ConfirmedRollbackAnnotation: "one"}, repository.Annotations)
}
