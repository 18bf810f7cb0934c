package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestSweep(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "nstpl-operator")
	require.NoError(t, buildOperator(t.Context(), binary))
	w, err := newWorld(t.Context(), binary, 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.stop()) })
	known := newBaselines()
	for _, s := range []scenario{populate(), edit(), adopt()} {
		for _, policy := range []v1alpha1.DriftPolicy{v1alpha1.DriftCorrect, v1alpha1.DriftReport} {
			for _, f := range append([]fault{{}}, killed(2)...) {
				one := trial{scenario: s, fault: f, policy: policy, namespaces: 2}
				t.Run(one.String(), func(t *testing.T) {
					result := w.try(one, known)
					t.Logf("%s: %d writes, %d faults", result.took, result.writes, result.injected)
					if len(result.failures) > 0 {
						t.Error(one.report(1, result.failures))
					}
				})
			}
		}
	}
}
