package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

const (
	correct = v1alpha1.DriftCorrect
	report  = v1alpha1.DriftReport
)

// of returns trials of a scenario with named faults.
func of(t *testing.T, s scenario, policy v1alpha1.DriftPolicy, namespaces int, names ...string) []trial {
	t.Helper()
	known := map[string]fault{}
	for _, f := range append(append(append(faults(), faultsOfTwo()...), killed(12)...), s.own...) {
		known[f.name] = f
	}
	var trials []trial
	for _, name := range names {
		require.Contains(t, known, name)
		trials = append(trials, trial{scenario: s, fault: known[name], policy: policy, namespaces: namespaces, seed: 1})
	}
	return trials
}

// everyWrite returns trials that kill the operator before and after each of the first writes.
func everyWrite(s scenario, policy v1alpha1.DriftPolicy, writes int) []trial {
	var trials []trial
	for _, f := range killed(writes) {
		trials = append(trials, trial{scenario: s, fault: f, policy: policy, namespaces: 1})
	}
	return trials
}

// sweep are trials that each show something on an operator that gets it wrong, by the number of replicas. See the
// README.
func sweep(t *testing.T, replicas int) []trial {
	t.Helper()
	join := func(parts ...[]trial) (all []trial) {
		for _, part := range parts {
			all = append(all, part...)
		}
		return all
	}
	if replicas == 1 {
		return join(
			of(t, adopt(), correct, 5, "500 after writes", "500 instead of writes", "reset after writes",
				"killed after write 2", "API server crashes"),
			of(t, again(), report, 2, "answers to deletions late", "503 after writes"),
			of(t, again(), correct, 2, "answers to deletions late"),
			of(t, edit(), report, 10, "reset after writes", "500 after writes"),
			of(t, relabel(), correct, 3, "RoleBindings not applied", "etcd crashes"),
			of(t, move(), correct, 3, "RoleBindings not applied"),
			of(t, moveAbove(), report, 3, "watches cut and gone"),
			of(t, broken(), correct, 2, "a kind answers 503", "a kind does not answer"),
			of(t, leave(), correct, 2, "down"),
			of(t, populate(), report, 2, "killed after write 1", "killed before write 3", "429 instead of writes"),
			of(t, rename(), correct, 3, "network cut", "down"),
			of(t, recreate(), report, 2, "watches late"),
			of(t, authoritative(), report, 2, "reset instead of writes"),
			everyWrite(edit(), report, 5),
		)
	}
	return join(
		of(t, edit(), correct, 10, "the leader is suspended"),
		of(t, uids(), correct, 20, "writes late and the sender killed", "killed after write 1"),
		of(t, relabel(), correct, 5, "the leader ends while the standby is late"),
		of(t, moveAbove(), correct, 5, "the leader ends while the standby is late"),
		of(t, quota(), correct, 3, "killed after write 2", "500 after writes"),
		of(t, drift(), report, 3, "restarted", "down"),
		of(t, remove(), report, 3, "503 instead of writes", "writes late and the sender killed"),
		of(t, adopt(), report, 3, "killed after write 1", "killed before write 2"),
		of(t, rename(), report, 3, "network cut"),
		of(t, again(), correct, 2, "watches cut"),
		everyWrite(relabel(), correct, 2),
	)
}

// What administrators do comes out right under faults. A longer campaign is make faults.
func TestSweep(t *testing.T) {
	ctrl.SetLogger(zap.New()) // clients have something to say
	binary := os.Getenv("NSTPL_TEST_OPERATOR")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "nstpl-operator")
		require.NoError(t, buildOperator(t.Context(), binary))
	}
	known := newBaselines()
	for replicas, name := range map[int]string{1: "one replica", 2: "two replicas"} {
		trials := sweep(t, replicas)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := newWorld(t.Context(), binary, replicas)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, w.stop()) })
			for _, one := range trials {
				t.Run(one.String(), func(t *testing.T) {
					came := w.try(one, known)
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
