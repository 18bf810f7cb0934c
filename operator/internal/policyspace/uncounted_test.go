package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestUncountedLimit(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("cpu", "3", "services", "2"), nil)
	for name, test := range map[string]struct {
		used       corev1.ResourceList
		created    string
		isSettling bool
		want       []string
	}{
		"counted":                       {used: resourceList("cpu", "1"), created: "pods"},
		"not counted":                   {created: "pods", want: []string{"cpu"}},
		"not counted in a new one":      {created: "pods", isSettling: true, want: []string{"cpu"}},
		"exists early":                  {created: "services", want: []string{"services"}},
		"exists early in a new one":     {created: "services", isSettling: true},
		"not limited":                   {created: "secrets"},
		"something else is not counted": {used: resourceList("services", "1"), created: "services"},
	} {
		uncounted := uncountedLimit(space, test.used, schema.GroupResource{Resource: test.created}, test.isSettling)
		if test.want == nil {
			require.Nil(t, uncounted, name)
			continue
		}
		require.NotNil(t, uncounted, name)
		require.Equal(t, "s", uncounted.Space, name)
		require.Equal(t, test.want, uncounted.Resources, name)
	}
}

// An API server that has not seen a usage quota yet would charge nothing.
func TestRecentUsageQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		usageQuota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{v1alpha1.RecountAnnotation: recountTimestamp()},
		}}
		require.True(t, isRecent(usageQuota))
		time.Sleep(chargedAge - time.Millisecond)
		require.True(t, isRecent(usageQuota))
		time.Sleep(time.Millisecond)
		require.False(t, isRecent(usageQuota))
	})
}
