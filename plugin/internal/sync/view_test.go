package sync

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

var (
	oldCommit = strings.Repeat("0a", 20)
	newCommit = strings.Repeat("1b", 20)
	newDigest = "sha256:" + strings.Repeat("2c", 32)
	testTime  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// newRepository returns a repository whose newest commit is in force.
func newRepository() *v1alpha1.PolicyRepository {
	synced := metav1.NewTime(testTime)
	return &v1alpha1.PolicyRepository{
		ObjectMeta: metav1.ObjectMeta{Name: "foo-corp", Generation: 2},
		Status: v1alpha1.PolicyRepositoryStatus{
			ObservedGeneration: 2,
			Commits:            v1alpha1.RepositoryCommits{Fetched: newCommit, Vetted: newCommit, Applied: newCommit},
			Tree:               "foo-corp", Namespaces: 3, LastSyncTime: &synced,
			Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Synced", Message: "in force"}},
		},
	}
}

// newPrinter returns a printer that writes to buffers.
func newPrinter(format string) (p *printer, out, errOut *bytes.Buffer) {
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	return &printer{Session: cli.NewSession(streams), output: cli.ListFlags{Format: format}}, out, errOut
}

func TestReady(t *testing.T) {
	for name, test := range map[string]struct {
		change        func(*v1alpha1.PolicyRepository)
		ready, reason string
	}{
		"in force":     {func(*v1alpha1.PolicyRepository) {}, "True", "Synced"},
		"not reported": {func(r *v1alpha1.PolicyRepository) { r.Status.Conditions = nil }, "Unknown", "NotReported"},
		"not observed": {func(r *v1alpha1.PolicyRepository) { r.Generation = 3 }, "Unknown", "NotObserved"},
		"not ready": {func(r *v1alpha1.PolicyRepository) {
			r.Status.Conditions[0].Status, r.Status.Conditions[0].Reason = "False", "Violations"
		}, "False", "Violations"},
	} {
		t.Run(name, func(t *testing.T) {
			repository := newRepository()
			test.change(repository)
			v := newView("", repository)
			require.Equal(t, test.ready, v.Ready)
			require.Equal(t, test.reason, v.Reason)
			require.Equal(t, test.ready == "True", v.isReady())
			if v.isReady() {
				require.NoError(t, readiness([]view{v}))
			} else {
				require.Equal(t, &cli.Exit{Code: 1}, readiness([]view{newView("", newRepository()), v}))
			}
		})
	}
}

func TestTable(t *testing.T) {
	p, out, errOut := newPrinter("")
	empty := &v1alpha1.PolicyRepository{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	require.NoError(t, p.print([]view{newView("", newRepository()), newView("", empty)}, testTime.Add(time.Minute)))
	require.Equal(t, strings.TrimPrefix(`
NAME       READY     REASON        COMMIT    TREE       NAMESPACES   SYNCED
foo-corp   True      Synced        1b1b1b1   foo-corp   3            60s
new        Unknown   NotReported   <none>    <none>     0            <none>
`, "\n"), out.String())
	require.Equal(t, "new: not ready: NotReported: nstpl-sync has not reported a status yet: run 'kubectl get pods -n "+
		"nstpl-system' to check whether it is running\n", errOut.String())
}

// A command that a note proposes must not run in the cluster of another context.
func TestNotesProposeCommandsInTheirContext(t *testing.T) {
	p, _, errOut := newPrinter("")
	broken := newRepository()
	broken.Status.Conditions[0].Status = metav1.ConditionFalse
	broken.Status.Failures = []v1alpha1.RepositoryFailure{{Object: "role/a", Message: "run 'kubectl get role a'"}}
	require.NoError(t, p.print([]view{newView("test", &v1alpha1.PolicyRepository{}), newView("test", broken)}, testTime))
	require.Contains(t, errOut.String(), "run 'kubectl get pods -n nstpl-system --context test' to check")
	require.Contains(t, errOut.String(), "role/a: run 'kubectl get role a --context test'")

	p, _, errOut = newPrinter("")
	*p.Config.Context = "production"
	require.NoError(t, p.print([]view{newView("", broken)}, testTime))
	require.Contains(t, errOut.String(), "role/a: run 'kubectl get role a --context production'")

	wide, out, _ := newPrinter(cli.FormatWide)
	require.NoError(t, wide.print([]view{newView("test", &v1alpha1.PolicyRepository{})}, testTime))
	require.Contains(t, out.String(), "run 'kubectl get pods -n nstpl-system --context test' to check")
	structured, out, _ := newPrinter(cli.FormatJSON)
	require.NoError(t, structured.print([]view{newView("test", &v1alpha1.PolicyRepository{})}, testTime))
	require.Contains(t, out.String(), "run 'kubectl get pods -n nstpl-system' to check", "programs get no flags")
}

// A missing nstpl-sync is an error. That the lease cannot be read is none.
func TestNotRunning(t *testing.T) {
	t.Parallel()
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	const none = "no nstpl-sync holds lease nstpl-sync in namespace nstpl-system, so unless one runs with " +
		"--leader-elect=false, nothing is"
	for name, test := range map[string]struct {
		leader    cluster.Leader
		unread    error
		want      string
		isUnknown bool
	}{
		"running":       {leader: cluster.Leader{Running: true}},
		"ended":         {want: none},
		"never started": {unread: apierrors.NewNotFound(leases, "nstpl-sync"), want: none},
		"not readable": {
			unread: apierrors.NewForbidden(leases, "nstpl-sync", errors.New("no")), isUnknown: true,
			want: "lease nstpl-sync in namespace nstpl-system cannot be read, so it is unknown whether nstpl-sync is running: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			isUnknown, err := errNotRunning(test.leader, test.unread)
			require.Equal(t, test.isUnknown, isUnknown)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
			if !isUnknown {
				require.ErrorContains(t, err, "run 'kubectl nstpl check'")
			}
		})
	}
}

func TestTableOfContextsAndWideTable(t *testing.T) {
	p, out, errOut := newPrinter(cli.FormatWide)
	p.hasContexts = true
	repository := newRepository()
	repository.Status.Commits.Fetched = oldCommit
	require.NoError(t, p.print([]view{newView("test", repository)}, testTime))
	require.Equal(t, strings.TrimPrefix(`
CONTEXT   NAME       READY   REASON   COMMIT    TREE       NAMESPACES   SYNCED   FETCHED   MESSAGE
test      foo-corp   True    Synced   1b1b1b1   foo-corp   3            0s       0a0a0a0   in force
`, "\n"), out.String())
	require.Equal(t, "test/foo-corp: commit 0a0a0a0 is fetched but not applied\n", errOut.String())
}

func TestFormats(t *testing.T) {
	p, out, errOut := newPrinter(cli.FormatJSON)
	require.NoError(t, p.print(nil, testTime))
	require.JSONEq(t, `{"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "RepositoryStatusList", "items": []}`, out.String())
	out.Reset()
	require.NoError(t, p.print([]view{newView("test", newRepository())}, testTime))
	require.Contains(t, out.String(), `"context": "test"`)
	require.Contains(t, out.String(), `"applied": "`+newCommit+`"`)
	require.Empty(t, errOut.String())

	p, out, _ = newPrinter(cli.FormatYAML)
	require.NoError(t, p.print([]view{newView("", newRepository())}, testTime))
	require.NoError(t, p.print([]view{newView("", newRepository())}, testTime))
	require.Equal(t, 2, strings.Count(out.String(), "- message: in force\n"))
	require.Equal(t, 1, strings.Count(out.String(), "---\n"))
	require.NotContains(t, out.String(), "context")
}

func TestNothingToShow(t *testing.T) {
	p, out, errOut := newPrinter("")
	require.NoError(t, p.print(nil, testTime))
	require.Empty(t, out.String())
	require.Equal(t, "No resources found\n", errOut.String())
}

// Every user who may push to the Git repository chooses texts in the status. None of them controls the terminal.
func TestControlCharactersAreEscaped(t *testing.T) {
	const evil = "a\x1b[2J\r\u202eb\nc"
	repository := newRepository()
	repository.Status.Commits = v1alpha1.RepositoryCommits{Fetched: "\x1b[1m", Applied: "\x1b[2m"}
	repository.Status.Tree = evil
	repository.Status.Conditions[0].Message, repository.Status.Conditions[0].Reason = evil, evil
	repository.Status.PendingDeletions = &v1alpha1.PendingDeletions{Commit: evil, Namespaces: []string{evil}}
	repository.Status.Violations = []v1alpha1.RepositoryViolation{{Path: evil, Line: 1, Message: evil}}
	repository.Status.Failures = []v1alpha1.RepositoryFailure{{Object: evil, Message: evil}}
	repository.Status.UnmanagedNamespaces = []string{evil}
	commits := []applied{{evil, v1alpha1.AppliedCommit{Commit: evil, Author: evil, Subject: evil}}}
	for _, format := range []string{"", cli.FormatWide, cli.FormatJSON, cli.FormatYAML} {
		p, out, errOut := newPrinter(format)
		require.NoError(t, p.print([]view{newView("", repository)}, testTime))
		h := &history{Session: p.Session, output: cli.ListFlags{Format: format}}
		require.NoError(t, h.write(commits, testTime))
		for _, text := range []string{out.String(), errOut.String()} {
			require.NotContains(t, text, "\x1b", "format %q", format)
			require.NotContains(t, text, "\r", "format %q", format)
			require.NotContains(t, text, "\u202e", "format %q", format)
			require.NotContains(t, text, "b\nc", "format %q", format)
		}
	}
}
