package check

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// printed returns the output for results.
func printed(t *testing.T, format, checked string, results ...Result) string {
	t.Helper()
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	o := &check{Session: cli.NewSession(streams), output: cli.FormatFlag{Format: format}}
	report := newReport(results)
	report.Checked, report.Time = checked, metav1.NewTime(now)
	require.NoError(t, o.print([]Report{report}))
	require.Empty(t, errOut.String())
	return out.String()
}

func TestOutput(t *testing.T) {
	t.Parallel()
	require.Equal(t, `OK       a is fine
FAILURE  b failed
FAILURE  c failed
         correct both
WARNING  d\x1b[31m is odd
         look at it
UNKNOWN  e unknown
         look at it too
the installation has problems: 1 OK, 1 warning, 2 failures, 1 unknown
`, printed(t, "", afterInstallation,
		Result{Status: OK, Message: "a is fine"},
		Result{Status: Failure, Message: "b failed", Remedy: "correct both"},
		Result{Status: Failure, Message: "c failed", Remedy: "correct both"},
		Result{Status: Warning, Message: "d\x1b[31m is odd", Remedy: "look at it"},
		Result{Status: Unknown, Message: "e unknown", Remedy: "look at it too"}))
	require.Equal(t, "OK       a\nnstpl can be installed: 1 OK\n",
		printed(t, "", beforeInstallation, Result{Status: OK, Message: "a"}))
	require.Equal(t, "UNKNOWN  a\n         b\nnot everything could be checked: 0 OK, 1 unknown\n",
		printed(t, "", beforeInstallation, Result{Status: Unknown, Message: "a", Remedy: "b"}))

	var report Report
	require.NoError(t, json.Unmarshal([]byte(printed(t, cli.FormatJSON, afterInstallation,
		Result{Check: "x", Status: Warning, Message: "a", Remedy: "b", Object: "namespace/a"})), &report))
	require.Equal(t, "CheckReport", report.Kind)
	require.Equal(t, "policy.nstpl.dev/v1alpha1", report.APIVersion)
	require.Equal(t, Summary{Warnings: 1}, report.Summary)
	require.Equal(t, []Result{{Check: "x", Status: Warning, Message: "a", Remedy: "b", Object: "namespace/a"}}, report.Results)
	require.Contains(t, printed(t, cli.FormatYAML, afterInstallation), "results: []\n")
}

// A remedy must not run in the cluster of another context.
func TestCommandsOfSeveralClustersSelectTheContext(t *testing.T) {
	t.Parallel()
	drifted := Result{
		Status: Warning, Message: "the operator may not get it: grant that with 'kubectl create role a'",
		Remedy: "'kubectl nstpl diff team-a' shows the changes, and who made them",
	}
	report := newReport([]Result{drifted})
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	o := &check{Session: session}
	text := func(report Report) string {
		out.Reset()
		require.NoError(t, o.print([]Report{report}))
		return out.String()
	}
	require.Contains(t, text(report), "'kubectl nstpl diff team-a' shows the changes")
	o.contexts, report.Context = cli.Contexts{"production"}, "production"
	require.Contains(t, text(report), "'kubectl nstpl diff team-a --context production' shows the changes")
	require.Contains(t, text(report), "'kubectl create role a --context production'")
	o.output.Format = cli.FormatJSON
	require.Contains(t, text(report), "'kubectl create role a'", "programs read the context in a field of its own")
}

// Each line of several clusters names its cluster, also in JSON.
func TestOutputOfSeveralClusters(t *testing.T) {
	t.Parallel()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := &check{Session: cli.NewSession(streams), contexts: cli.Contexts{"test", "production"}}
	good := newReport([]Result{{Status: OK, Message: "a"}})
	bad := newReport([]Result{{Status: OK, Message: "a"}, {Status: Failure, Message: "b", Remedy: "c"}})
	good.Context, good.Checked, bad.Context, bad.Checked = "test", afterInstallation, "production", afterInstallation
	require.NoError(t, o.print([]Report{good, bad}))
	require.Equal(t, `test        OK       a
production  OK       a
production  FAILURE  b
                     c
context "test": the installation is in order: 1 OK
context "production": the installation has problems: 1 OK, 1 failure
`, out.String())
	out.Reset()
	o.output.Format = cli.FormatJSON
	require.NoError(t, o.print([]Report{good, bad}))
	var list struct {
		Kind  string
		Items []Report
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &list))
	require.Equal(t, "CheckReportList", list.Kind)
	require.Equal(t, "production", list.Items[1].Context)
}
