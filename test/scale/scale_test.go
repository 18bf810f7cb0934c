package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/operator"
)

// TestRun measures a small cluster with all steps.
func TestRun(t *testing.T) {
	marks.Thorough(t)
	dir := t.TempDir()
	require.NoError(t, operator.Build(t.Context(), dir, "nstpl-operator", "kubectl-nstpl"))
	t.Chdir("../..") // where make bench-scale runs: the manifests are relative to it
	o, err := parseFlags([]string{
		"-sizes=10", "-creations=3", "-floor=5", "-probes=2", "-operator=" + filepath.Join(dir, "nstpl-operator"),
		"-plugin=" + filepath.Join(dir, "kubectl-nstpl"), "-json=" + filepath.Join(dir, "a.json"),
		"-html=" + filepath.Join(dir, "a.html"),
	}, os.Stderr)
	require.NoError(t, err)
	var out, progress bytes.Buffer
	require.NoError(t, run(t.Context(), o, &out, &progress), "%s", &progress)

	text, err := os.ReadFile(o.json)
	require.NoError(t, err)
	var measured report
	require.NoError(t, json.Unmarshal(text, &measured))
	require.Empty(t, measured.Failures)
	values := map[string]float64{}
	for _, m := range measured.Measurements {
		require.Len(t, m.Points, 1, m.Name)
		values[m.Name] = m.last().Value
	}
	for _, name := range []string{
		"request that creates a namespace, idle cluster: p99", "namespace populated, at 25 per second: p99",
		"API server's CPU time for a namespace", "writes for a namespace", "diff -A: time", "vet DIR: peak memory",
		"rollout to all namespaces: writes, to changes", "move of all namespaces: time", "restart: until ready",
		"restart: peak memory", "the leader is killed: until everything is corrected",
		"the API server restarts: writes, to changes", "the API server restarts: peak memory of a replica",
		"largest status of namespaces with failures", "largest status of policyspaces",
		"deletion of a tenth of the namespaces at once: time for each",
	} {
		require.Positive(t, values[name], name)
	}
	for _, name := range []string{
		"move of all namespaces: gaps in access",
		"the leader is killed: namespaces that open before they are populated",
		"the API server restarts: namespaces that open before they are populated",
	} {
		require.Zero(t, values[name], name)
	}
	require.FileExists(t, o.html)
	require.Contains(t, out.String(), "restart: until ready")
	require.Contains(t, progress.String(), "10 namespaces: move of a policy space")
}

func TestFailedStepDoesNotEndTheRun(t *testing.T) {
	o, err := parseFlags([]string{"-sizes=7"}, os.Stderr)
	require.NoError(t, err)
	var progress bytes.Buffer
	b := newBench(o, t.TempDir(), &progress)
	b.content = 7
	b.step(t.Context(), "impossible", func(context.Context) error { return os.ErrNotExist })
	b.step(t.Context(), "possible", func(context.Context) error { return nil })
	require.Equal(t, []failure{{7, "impossible", os.ErrNotExist.Error()}}, b.report.Failures)
	require.Len(t, b.report.Steps, 2)
	require.Contains(t, progress.String(), "FAILED: impossible")
}
