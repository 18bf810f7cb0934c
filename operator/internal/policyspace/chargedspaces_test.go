package policyspace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A namespace that moves waits until the policy space that it enters counts the usage of the one that it leaves.
func TestCountsUsageOf(t *testing.T) {
	t.Parallel()
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	for name, test := range map[string]struct {
		change func(*v1alpha1.PolicySpace)
		want   bool
	}{
		"empty": {func(*v1alpha1.PolicySpace) {}, false},
		"new, with namespaces": {func(s *v1alpha1.PolicySpace) {
			s.CreationTimestamp, s.Status.Namespaces = metav1.Now(), 3
		}, false},
		"old, with namespaces": {func(s *v1alpha1.PolicySpace) { s.Status.Namespaces = 3 }, true},
		"shares": {func(s *v1alpha1.PolicySpace) {
			s.Status.SharedWith = []v1alpha1.PolicySpaceShare{{Name: "old"}}
		}, true},
		"shares with another": {func(s *v1alpha1.PolicySpace) {
			s.Status.SharedWith = []v1alpha1.PolicySpaceShare{{Name: "other"}}
		}, false},
		"no quota": {func(s *v1alpha1.PolicySpace) { s.Spec.Quota = nil }, true},
	} {
		space := countedSpace(resourceList("pods", "3"), nil)
		space.CreationTimestamp = long
		test.change(space)
		require.Equal(t, test.want, countsUsageOf(space, "old"), name)
	}
}
