package policyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestUnreachableLimits(t *testing.T) {
	t.Parallel()
	named := func(name string, hard corev1.ResourceList) *v1alpha1.PolicySpace {
		space := countedSpace(hard, nil)
		space.Name = name
		return space
	}
	require.Equal(t,
		[]string{"policyspace team limits pods to 6, but usage reaches the limit 5 of its ancestor dept first"},
		unreachableLimits([]*v1alpha1.PolicySpace{
			named("team", resourceList("pods", "6", "services", "2", "secrets", "2")),
			named("dept", resourceList("pods", "5", "services", "2")),
			named("root", resourceList("pods", "4", "services", "3")),
		}))
}
