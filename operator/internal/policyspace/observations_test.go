package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

func TestCountsAll(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("pods", "3", "services", "2"), nil)
	space.Status.Hard = resourceList("pods", "3", "secrets", "9")
	require.True(t, countsAll(resourceList("pods", "1"), space),
		"services are not enforced yet, secrets no longer limited")
	require.False(t, countsAll(resourceList("services", "1"), space))
	require.True(t, countsAll(nil, &v1alpha1.PolicySpace{}))
}

func TestUncountedNamespaces(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("pods", "3", "services", "2"), nil)
	require.Equal(t, []string{"b", "c"}, uncountedNamespaces(space, []string{"a", "b", "c"}, map[string]quota.Observed{
		"a": {Used: resourceList("pods", "1", "services", "0")}, "b": {Used: resourceList("pods", "1")},
	}))
	require.Empty(t, uncountedNamespaces(&v1alpha1.PolicySpace{}, []string{"a"}, nil))
}

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

// A namespace without counted usage is new only if it was created since this process remembers, is recent or still
// initializing, and was not counted before.
func TestFirstCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space := countedSpace(resourceList("pods", "3"), nil)
		unenforced := &v1alpha1.PolicySpace{}
		created := func(uid types.UID, labels map[string]string) *corev1.Namespace {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				UID: uid, Labels: labels, CreationTimestamp: metav1.Now(),
			}}
		}
		counts := &firstCounts{}
		old := created("old", nil)
		time.Sleep(time.Second)
		counts.start(time.Now())
		require.False(t, counts.isNew(space, old), "it may have been counted before")
		time.Sleep(time.Second)
		counts.start(time.Now()) // has no effect
		recent := created("recent", nil)
		initializing := created("initializing", map[string]string{v1alpha1.InitializingLabel: ""})
		counted := created("counted", nil)
		counts.add(unenforced, recent)
		counts.add(space, counted)
		require.True(t, counts.isNew(space, recent))
		require.False(t, counts.isNew(space, counted))
		require.True(t, counts.isNew(countedSpace(nil, nil), recent))
		time.Sleep(settlingAge + time.Second)
		require.False(t, counts.isNew(space, recent))
		require.True(t, counts.isNew(space, initializing))
		counts.add(space, initializing)
		require.Len(t, counts.counted, 1, "only recent namespaces are remembered")
		counts.add(space, created("later", nil))
		require.Len(t, counts.counted, 1, "old entries are deleted")
	})
}
