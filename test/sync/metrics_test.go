package sync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/operator"
)

// waitMetric waits until a process reports a value about the tree.
func (x *tree) waitMetric(process *operator.Process, want float64, name string, labels ...string) {
	x.Helper()
	labels = append(labels, `repository="`+x.name+`"`)
	x.eventually(func(c *assert.CollectT) {
		value, found, err := process.Metric(x.Context(), name, labels...)
		assert.NoError(c, err)
		assert.True(c, found, name)
		assert.InDelta(c, want, value, 0, name)
	})
}

// waitMeasured waits until nstpl-sync has measured a phase for the tree: once, or more often if a pass is repeated.
func (x *tree) waitMeasured(phase string) {
	x.Helper()
	x.eventually(func(c *assert.CollectT) {
		count, _, err := cluster.sync.Metric(
			x.Context(), "nstpl_sync_phase_seconds_count", `phase="`+phase+`"`, `repository="`+x.name+`"`)
		assert.NoError(c, err)
		assert.GreaterOrEqual(c, count, 1.0, phase)
	})
}

// The metrics say what the status of a PolicyRepository says, and how long the phases took. Nothing is left of them
// when the PolicyRepository is deleted.
func TestMetricsDescribeTheRepository(t *testing.T) {
	t.Parallel()
	x := newTree(t, "metered")
	files := map[string]string{
		"role.yaml":                   roleFile("metered-a", "get"),
		"metered-a/namespace.yaml":    namespaceFile("metered-a"),
		"metered-b/namespace.yaml":    namespaceFile("metered-b"),
		"metered-left/namespace.yaml": namespaceFile("metered-left"),
	}
	a := x.commit(files)
	x.follow()
	x.waitApplied(a)
	x.waitMetric(cluster.sync, 1, "nstpl_sync_ready", `reason="Synced"`)
	x.waitMetric(cluster.sync, 1, "nstpl_sync_commit_info", `commit="`+a+`"`)
	x.waitMetric(cluster.sync, 60, "nstpl_sync_interval_seconds")
	for _, phase := range []string{"fetch", "vet", "apply"} {
		x.waitMeasured(phase)
	}

	b := x.commit(without(files, "metered-a/namespace.yaml", "metered-b/namespace.yaml", "role.yaml"))
	x.waitReason("DeletionsPending", b)
	x.waitMetric(cluster.sync, 2, "nstpl_sync_pending_deletions")
	x.waitMetric(cluster.sync, 0, "nstpl_sync_ready", `reason="DeletionsPending"`)
	x.waitMetric(cluster.sync, 1, "nstpl_sync_commit_info") // there is no series with the commit before
	x.waitMeasured("prune")

	x.waitReason("Violations", x.commit(map[string]string{"metered-a/namespace.yaml": namespaceFile("another")}))
	x.waitMetric(cluster.sync, 1, "nstpl_sync_violations")
	x.waitMetric(cluster.sync, 0, "nstpl_sync_ready", `reason="Violations"`)

	require.NoError(t, cluster.client.Delete(t.Context(), x.repository))
	for _, name := range []string{
		"nstpl_sync_ready", "nstpl_sync_commit_info", "nstpl_sync_interval_seconds", "nstpl_sync_violations",
		"nstpl_sync_pending_deletions", "nstpl_sync_last_success_timestamp_seconds", "nstpl_sync_phase_seconds_count",
	} {
		x.eventually(func(c *assert.CollectT) {
			_, found, err := cluster.sync.Metric(t.Context(), name, `repository="metered"`)
			assert.NoError(c, err)
			assert.False(c, found, name)
		})
	}
}
