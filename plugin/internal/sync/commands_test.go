package sync

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

func encoded(t *testing.T, repository *v1alpha1.PolicyRepository) *unstructured.Unstructured {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(repository)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: object}
}

func TestSuspendAndResume(t *testing.T) {
	running, suspended := newRepository(), newRepository()
	suspended.Spec.Suspend = true
	patch, err := suspendPatch(encoded(t, running))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"spec": map[string]any{"suspend": true}}, patch)
	patch, err = resumePatch(encoded(t, suspended))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"spec": map[string]any{"suspend": nil}}, patch)

	_, err = suspendPatch(encoded(t, suspended))
	require.EqualError(t, err, `policyrepositories.policy.nstpl.dev "foo-corp" is already suspended`)
	_, err = resumePatch(encoded(t, running))
	require.EqualError(t, err, `policyrepositories.policy.nstpl.dev "foo-corp" is not suspended`)
	_, err = requestPatch(encoded(t, suspended), "now")
	require.EqualError(t, err, `policyrepositories.policy.nstpl.dev "foo-corp" is suspended: `+
		`run 'kubectl nstpl sync resume foo-corp' first`)
}

func TestIsServed(t *testing.T) {
	const request = "2026-01-02T03:04:05.000000006Z"
	requested := newRepository()
	requested.ResourceVersion = "10"
	requested.Annotations = map[string]string{v1alpha1.SyncRequestedAnnotation: request}
	for name, test := range map[string]struct {
		version, annotation, served string
		want                        bool
	}{
		"served":                           {"11", request, request, true},
		"not served yet":                   {"11", request, "2026-01-01T00:00:00Z", false},
		"never served":                     {"11", request, "", false},
		"annotation removed":               {"11", "", "", false},
		"replaced by a request, served":    {"12", "later", "later", true},
		"served before it was replaced":    {"12", "later", request, true},
		"replaced, not served":             {"12", "later", "earlier", false},
		"as it was before the request":     {"9", "earlier", "earlier", false},
		"with an unknown resource version": {"x", request, request, false},
	} {
		t.Run(name, func(t *testing.T) {
			repository := newRepository()
			repository.ResourceVersion, repository.Status.RequestedAt = test.version, test.served
			repository.Annotations = map[string]string{v1alpha1.SyncRequestedAnnotation: test.annotation}
			require.Equal(t, test.want, isServed(repository, encoded(t, requested)))
		})
	}
}

// pending returns a repository that waits for the confirmation of a commit.
func pending(namespaces ...string) *v1alpha1.PolicyRepository {
	repository := newRepository()
	repository.Status.PendingDeletions = &v1alpha1.PendingDeletions{
		Commit: newCommit, Namespaces: namespaces, Total: int32(len(namespaces)),
	}
	return repository
}

func TestPendingDeletions(t *testing.T) {
	const object = `policyrepositories.policy.nstpl.dev "foo-corp"`
	for name, test := range map[string]struct {
		change func(*v1alpha1.PolicyRepository)
		commit string
		err    string
	}{
		"abbreviated": {func(*v1alpha1.PolicyRepository) {}, newCommit[:7], ""},
		"complete":    {func(*v1alpha1.PolicyRepository) {}, newCommit, ""},
		"the digest of an artifact": {
			func(r *v1alpha1.PolicyRepository) { r.Status.PendingDeletions.Commit = newDigest }, newDigest[:14], "",
		},
		"another digest": {
			func(r *v1alpha1.PolicyRepository) { r.Status.PendingDeletions.Commit = newDigest }, "sha256:1b1b1b1",
			object + " has no deletions of artifact sha256:1b1b1b1 to confirm, but of artifact " + newDigest +
				": run 'kubectl nstpl sync status foo-corp' to see them",
		},
		"a digest without its algorithm": {
			func(r *v1alpha1.PolicyRepository) { r.Status.PendingDeletions.Commit = newDigest }, newDigest[7:14],
			object + " has no deletions of commit 2c2c2c2 to confirm, but of artifact " + newDigest +
				": run 'kubectl nstpl sync status foo-corp' to see them",
		},
		"a malformed digest": {
			func(r *v1alpha1.PolicyRepository) { r.Status.PendingDeletions.Commit = newDigest[:20] }, newDigest[:14],
			"the status of " + object + " names no commit to confirm: run 'kubectl nstpl sync status foo-corp'",
		},
		"nothing pending": {
			func(r *v1alpha1.PolicyRepository) { r.Status.PendingDeletions = nil }, newCommit,
			object + " has no deletions to confirm",
		},
		"another commit": {
			func(*v1alpha1.PolicyRepository) {}, oldCommit[:7],
			object + " has no deletions of commit 0a0a0a0 to confirm, but of commit " + newCommit +
				": run 'kubectl nstpl sync status foo-corp' to see them",
		},
		"confirmed": {
			func(r *v1alpha1.PolicyRepository) {
				r.Annotations = map[string]string{v1alpha1.ConfirmedCommitAnnotation: newCommit}
			}, newCommit, "commit " + newCommit + " of " + object + " is already confirmed",
		},
		// The status may describe another path, and so other namespaces.
		"changed spec": {
			func(r *v1alpha1.PolicyRepository) { r.Generation++ }, newCommit,
			"nstpl-sync has not seen the last change of " + object + " yet, so its pending deletions are unknown: " +
				"run 'kubectl nstpl sync status foo-corp', and then try again",
		},
		"not a commit": {
			func(r *v1alpha1.PolicyRepository) { r.Status.PendingDeletions.Commit = newCommit + "\n" }, newCommit,
			"the status of " + object + " names no commit to confirm: run 'kubectl nstpl sync status foo-corp'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			repository := pending("team-a")
			test.change(repository)
			got, err := pendingDeletions(repository, test.commit)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, repository.Status.PendingDeletions, got)
		})
	}
}

// The confirmation of a commit that is older than the one in force confirms no deletions.
func TestConfirmationOfARollback(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	o := &confirmation{in: cli.Source{Session: cli.NewSession(streams)}, commit: newCommit[:7]}
	repository := newRepository()
	repository.Status.PendingRollback = &v1alpha1.PendingRollback{
		Commit: newCommit, Committed: metav1.Unix(1, 0), InForce: oldCommit, InForceCommitted: metav1.Unix(2, 0),
	}
	patch, err := o.patch(encoded(t, repository))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{v1alpha1.ConfirmedRollbackAnnotation: newCommit},
	}}, patch)
	require.Equal(t, "commit 1b1b1b1 of 1970-01-01 00:00:01Z is older than commit 0a0a0a0 of 1970-01-01 00:00:02Z, "+
		"which is in force. To be applied, which may undo newer changes\n", errOut.String())
}

// A confirmation is about the namespaces that were printed, and about no others.
func TestConfirmationIsAboutWhatWasShown(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	o := &confirmation{in: cli.Source{Session: cli.NewSession(streams)}, commit: newCommit[:7]}
	repository := pending("team-a", "team-b")
	repository.Status.PendingDeletions.Total = 3
	repository.Spec.Suspend = true
	patch, err := o.patch(encoded(t, repository))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{v1alpha1.ConfirmedCommitAnnotation: newCommit},
	}}, patch)
	const shown = "commit 1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b no longer declares 3 namespaces. " +
		"To be DELETED, with everything in them:\n  team-a\n  team-b\n  and 1 more\n" +
		"Warning: policyrepositories.policy.nstpl.dev \"foo-corp\" is suspended: nothing is deleted until " +
		"'kubectl nstpl sync resume foo-corp'\n"
	require.Equal(t, shown, errOut.String())

	// Meanwhile, only the time of the last synchronization changed.
	later := metav1.Now()
	repository.Status.LastSyncTime = &later
	_, err = o.patch(encoded(t, repository))
	require.NoError(t, err)
	require.Equal(t, shown, errOut.String())

	// Meanwhile, other namespaces are to be deleted.
	for _, change := range []func(*v1alpha1.PendingDeletions){
		func(p *v1alpha1.PendingDeletions) { p.Namespaces = []string{"team-a", "team-c"} },
		func(p *v1alpha1.PendingDeletions) { p.Total = 4 },
		func(p *v1alpha1.PendingDeletions) { p.Commit = newCommit[:39] + "0" },
	} {
		other := repository.DeepCopy()
		change(other.Status.PendingDeletions)
		_, err = o.patch(encoded(t, other))
		require.EqualError(t, err,
			`the pending deletions of policyrepositories.policy.nstpl.dev "foo-corp" changed at `+
				`the same time, and nothing is confirmed: run 'kubectl nstpl sync status foo-corp', and then try again`)
	}
}

// The namespaces of all clusters are shown, and a cluster in which the commit does not wait for a confirmation is
// reported.
func TestConfirmationsInSeveralContexts(t *testing.T) {
	const elsewhere = "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1c"
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	in := func(context string, repository *v1alpha1.PolicyRepository) cli.Reply[*unstructured.Unstructured] {
		return cli.Reply[*unstructured.Unstructured]{
			Source: cli.Source{Session: session.ForContext(context), Context: context}, Value: encoded(t, repository),
		}
	}
	other := pending("team-d")
	other.Status.PendingDeletions.Commit = elsewhere
	o := &confirm{Session: session, commit: newCommit[:7]}
	confirmations, failures := o.showAll([]cli.Reply[*unstructured.Unstructured]{
		in("one", pending("team-a")), in("two", newRepository()), in("three", other), in("four", pending("team-b")),
	})
	require.Equal(t, `context "one": commit 1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b no longer declares 1 namespace. `+
		"To be DELETED, with everything in them:\n  team-a\n"+
		`context "four": commit 1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b no longer declares 1 namespace. `+
		"To be DELETED, with everything in them:\n  team-b\n", errOut.String())
	require.Len(t, confirmations, 2)
	require.Len(t, failures, 2)
	require.Equal(t, "two", failures[0].Context)
	require.EqualError(t, failures[0].Err, `policyrepositories.policy.nstpl.dev "foo-corp" has no deletions to confirm`)
	require.Equal(t, "three", failures[1].Context)
	require.EqualError(t, failures[1].Err, `policyrepositories.policy.nstpl.dev "foo-corp" has no deletions of commit `+
		newCommit+` to confirm, but of commit `+elsewhere+": run 'kubectl nstpl sync status foo-corp' to see them")
}

func TestHistory(t *testing.T) {
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	o := &history{Session: cli.NewSession(streams)}
	require.NoError(t, o.write(nil, testTime))
	require.Empty(t, out.String())
	require.Equal(t, "No sync history found\n", errOut.String())
	o.output.Format = cli.FormatJSON
	require.NoError(t, o.write(nil, testTime))
	require.JSONEq(t, `{"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "AppliedCommitList", "items": []}`, out.String())
}

func TestWatchPrintsWhatChanged(t *testing.T) {
	p, out, _ := newPrinter("")
	o := &status{printer: *p}
	shown := map[string]view{}
	rows := func(next change) string {
		out.Reset()
		require.NoError(t, o.printChange(shown, next))
		return out.String()
	}
	repository := newRepository()
	require.Contains(t, rows(change{view: newView("", repository)}), "Synced")
	require.Empty(t, rows(change{view: newView("", repository)}))

	// A synchronization that changed nothing is not printed.
	synced := metav1.NewTime(testTime.AddDate(0, 0, 1))
	repository.Status.LastSyncTime, repository.Status.RequestedAt = &synced, "now"
	require.Empty(t, rows(change{view: newView("", repository)}))
	repository.Status.Commits.Applied = oldCommit
	require.Contains(t, rows(change{view: newView("", repository)}), "0a0a0a0")
	require.Contains(t, rows(change{view: newView("test", repository)}), "0a0a0a0")

	gone := change{view: view{Name: "foo-corp"}, deleted: true}
	require.Contains(t, rows(gone), "Deleted")
	require.Empty(t, rows(gone))
}
