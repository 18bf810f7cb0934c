package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// TestStatesDoNotDependOnTheConstraintsOfOtherRuns expects that a namespace which was given user IDs, because another
// run had a constraint, is the same as one without.
func TestStatesDoNotDependOnTheConstraintsOfOtherRuns(t *testing.T) {
	t.Parallel()
	without := map[string]any{"metadata": map[string]any{"name": "theirs"}}
	with := map[string]any{"metadata": map[string]any{"name": "theirs", "annotations": map[string]any{
		v1alpha1.UIDRangeAnnotation: "1000000000/10000", v1alpha1.SupplementalGroupsAnnotation: "1000000000/10000",
		v1alpha1.MCSAnnotation: "s0:c1,c0",
	}}}
	normalize(without)
	normalize(with)
	assert.Equal(t, without, with)
}
