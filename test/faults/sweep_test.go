package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

const (
	correct = v1alpha1.DriftCorrect
	report  = v1alpha1.DriftReport
)

// trialsOf returns the trials of a scenario with named faults.
func trialsOf(t *testing.T, scenario string, policy v1alpha1.DriftPolicy, namespaces int, names ...string) []trial {
	t.Helper()
	var trials []trial
	for _, one := range everything(2) {
		if one.scenario.name == scenario && slices.Contains(names, one.fault.name) {
			one.policy, one.namespaces, one.seed = policy, namespaces, 1
			trials = append(trials, one)
		}
	}
	require.Len(t, trials, len(names), "scenario %q has other faults than %q", scenario, names)
	return trials
}

// sweepTrials returns trials, by the number of replicas, each of which detects some kind of incorrect operator. See the
// README.
func sweepTrials(t *testing.T, replicas int) []trial {
	t.Helper()
	if replicas == 1 {
		return slices.Concat(
			trialsOf(t, "adopt", correct, 5, "500 after writes", "500 instead of writes", "reset after writes",
				"killed after write 2", "API server crashes"),
			trialsOf(t, "adopt", report, 3, "429 after writes"),
			trialsOf(t, "again", report, 2, "answers to deletions late", "503 after writes"),
			trialsOf(t, "again", correct, 2, "answers to deletions late"),
			trialsOf(t, "edit", report, 10, "reset after writes", "500 after writes"),
			trialsOf(t, "edit", report, 3, "429 after every write", "500 after every write"),
			trialsOf(t, "relabel", correct, 3, "RoleBindings not applied", "etcd crashes"),
			trialsOf(t, "move", correct, 3, "RoleBindings not applied"),
			trialsOf(t, "move above", report, 3, "watches cut and gone"),
			trialsOf(t, "broken kind", correct, 2, "a kind answers 503", "a kind does not answer"),
			trialsOf(t, "leave", correct, 2, "down"),
			trialsOf(t, "populate", report, 2, "killed after write 1", "killed before write 3",
				"429 instead of writes"),
			trialsOf(t, "rename", correct, 3, "network cut", "down"),
			trialsOf(t, "recreate", report, 2, "watches late"),
			trialsOf(t, "authoritative", report, 2, "reset instead of writes"),
			trialsOf(t, "edit", report, 1, "killed before write 1", "killed before write 2", "killed before write 3",
				"killed before write 4", "killed before write 5", "killed after write 1", "killed after write 2",
				"killed after write 3", "killed after write 4", "killed after write 5"),
			trialsOf(t, "rollout", correct, 3, "restarted", "killed after write 3", "killed after write 6"),
			trialsOf(t, "stopped rollout", correct, 3, "killed after write 4"),
			trialsOf(t, "sync churn", correct, 2, "writes late and the sender killed"),
			trialsOf(t, "sync rename", correct, 3, "killed after write 4", "NamespaceTemplates not applied"),
			trialsOf(t, "sync first", correct, 2, "killed after write 3"),
			trialsOf(t, "sync edit", correct, 2, "500 after writes"),
			trialsOf(t, "sync labels", correct, 2, "killed after write 3", "500 after writes"),
			trialsOf(t, "counting", correct, 3, "down"),
			trialsOf(t, "exemption", report, 2, "reset after writes"),
			trialsOf(t, "expiry", correct, 2, "500 after writes"),
		)
	}
	return slices.Concat(
		trialsOf(t, "edit", correct, 10, "the leader is suspended"),
		trialsOf(t, "uids", correct, 20, "writes late and the sender killed", "killed after write 1"),
		trialsOf(t, "relabel", correct, 5, "the leader ends while the standby is late"),
		trialsOf(t, "move above", correct, 5, "the leader ends while the standby is late"),
		trialsOf(t, "quota", correct, 3, "killed after write 2", "500 after writes"),
		trialsOf(t, "drift", report, 3, "restarted", "down"),
		trialsOf(t, "delete", report, 3, "503 instead of writes", "writes late and the sender killed"),
		trialsOf(t, "adopt", report, 3, "killed after write 1", "killed before write 2"),
		trialsOf(t, "rename", report, 3, "network cut"),
		trialsOf(t, "again", correct, 2, "watches cut"),
		trialsOf(t, "rollout", report, 3, "the leader is suspended"),
		trialsOf(t, "relabel", correct, 1, "killed before write 1", "killed before write 2", "killed after write 1",
			"killed after write 2"),
		trialsOf(t, "sync delete", correct, 2, "the leader is suspended at once"),
		trialsOf(t, "sync confirm", correct, 2, "killed before write 2"),
		trialsOf(t, "accounts", correct, 2, "killed after write 3"),
		trialsOf(t, "sources", report, 2, "killed after write 4"),
		trialsOf(t, "metadata", correct, 2, "503 after writes"),
		trialsOf(t, "protection", correct, 2, "killed after write 2"),
	)
}

// The final state is correct under faults. make faults runs a longer campaign.
func TestSweep(t *testing.T) {
	marks.Thorough(t)
	ctrl.SetLogger(zap.New()) // controller-runtime complains if clients have no logger
	tested, err := build(t.Context(), t.TempDir())
	require.NoError(t, err)
	known := newBaselines()
	for replicas, name := range map[int]string{1: "one replica", 2: "two replicas"} {
		trials := sweepTrials(t, replicas)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := newTestCluster(t.Context(), tested, replicas)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.stop()) })
			for _, one := range trials {
				t.Run(one.String(), func(t *testing.T) {
					came := c.try(one, known)
					t.Logf("%s: %d writes, %d faults", came.took.Round(100*time.Millisecond), came.writes,
						came.injected)
					if len(came.failures) > 0 {
						t.Error(one.report(replicas, came.failures))
					}
				})
			}
		})
	}
}
