package policyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestLimitedResources(t *testing.T) {
	t.Parallel()
	spaces := []v1alpha1.PolicySpace{
		{}, *countedSpace(resourceList("cpu", "1", "pods", "2", "services", "1"), nil),
		*countedSpace(resourceList("count/jobs.batch", "1", "pods", "3"), nil),
	}
	require.Equal(t,
		[]schema.GroupResource{{Group: "batch", Resource: "jobs"}, {Resource: "pods"}, {Resource: "services"}},
		limitedResources(spaces))
	require.Empty(t, limitedResources(nil))
}
