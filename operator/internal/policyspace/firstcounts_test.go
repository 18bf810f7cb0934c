package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

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
