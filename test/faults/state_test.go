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

// TestRecordsDoNotDependOnTheNameOfTheRun expects that what a namespace records of objects whose names or contents have
// the run's id is the same in each run.
func TestRecordsDoNotDependOnTheNameOfTheRun(t *testing.T) {
	t.Parallel()
	recorded := func(record string) map[string]any {
		content := map[string]any{"metadata": map[string]any{"name": "n", "annotations": map[string]any{
			v1alpha1.ExistingAnnotation: record,
		}}}
		normalize(content)
		return content
	}
	one := recorded("*esaet7=7e0eaec5,+RUN-t=esaet7.R4k2,~=R5z3")
	assert.Equal(t, one, recorded("*esaet7=9d5c683e,+RUN-t=esaet7.R9z1,~=R7h0.R8a1"))
	assert.NotEqual(t, one, recorded("*esaet7=7e0eaec5,+RUN-t=esaet7,~=R5z3"))
}
