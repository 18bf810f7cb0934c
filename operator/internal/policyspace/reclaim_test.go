package policyspace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

func TestReclaimableReservations(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("pods", "9"), resourceList("pods", "6"),
		reserved("written", "2", "5"), reserved("unwritten", "3", "5"), reserved("deleted", "1", "5"))
	used := map[string]corev1.ResourceList{
		"written": resourceList("pods", "2"), "unwritten": resourceList("pods", "1"), "deleted": nil,
	}
	reclaimable := reclaimableReservations(space, used)
	require.Equal(t, space.Status.Reservations[1:], reclaimable)
	without := withoutReservations(space, reclaimable, used)
	require.EqualValues(t, 3, without.Status.Used.Pods().Value())
	require.EqualValues(t, 6, space.Status.Used.Pods().Value())
}

// While the cache contains no written usage, a reservation is left alone for the rest of reclaimTime.
func TestRemainingWriteTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &QuotaAdmission{}
		remember := func(pods string) {
			q.reservations.update("s", keysOf([]v1alpha1.QuotaReservation{reserved("a", pods, "5")}))
		}
		remember("1")
		time.Sleep(reclaimTime / 3)
		remember("2")
		require.Equal(t, reclaimTime-reclaimTime/3, q.remainingWriteTime("s", "a", "5"), "it is the same reservation")
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "a", "6"))
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "b", "5"))
		time.Sleep(reclaimTime)
		require.Zero(t, q.remainingWriteTime("s", "a", "5"))
		q.reservations.update("s", nil)
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "a", "5"))
	})
}

// renewedQuotas is an API server and a cache with usage quotas that only the operator writes.
type renewedQuotas struct {
	client.Client
	byNamespace map[string]*corev1.ResourceQuota
}

func (r renewedQuotas) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	r.byNamespace[key.Namespace].DeepCopyInto(into.(*corev1.ResourceQuota))
	return nil
}

func (r renewedQuotas) Patch(_ context.Context, into client.Object, _ client.Patch, _ ...client.PatchOption) error {
	stored := r.byNamespace[into.GetNamespace()]
	stored.ResourceVersion = "6"
	stored.DeepCopyInto(into.(*corev1.ResourceQuota))
	return nil
}

// A renewal ends the reservation of another namespace, whose room is free then. If it ends that of the namespace of the
// request, the usage from which the request goes on is outdated, too, so the API server has to ask again.
func TestARenewalOfTheOwnUsageQuotaMakesARequestOutdated(t *testing.T) {
	t.Parallel()
	limit := resourceList("pods", "4")
	for name, test := range map[string]struct {
		used         string
		reservations []v1alpha1.QuotaReservation
		change       quota.Change
		want         string
	}{
		"of another namespace": {
			"4", []v1alpha1.QuotaReservation{reserved("other", "3", "5")}, podsChange("own", "1", "2", "5"), "",
		},
		"of both": {
			"5", []v1alpha1.QuotaReservation{reserved("other", "3", "5"), reserved("own", "2", "5")},
			podsChange("own", "1", "3", "5"),
			"the usage of namespace own changed while the request was checked: try again (nstpl:busy)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := renewedQuotas{byNamespace: map[string]*corev1.ResourceQuota{}}
				for _, namespace := range []string{"other", "own"} {
					server.byNamespace[namespace] = &corev1.ResourceQuota{
						ObjectMeta: metav1.ObjectMeta{Namespace: namespace, ResourceVersion: "5"},
						Status:     corev1.ResourceQuotaStatus{Used: resourceList("pods", "1")},
					}
				}
				q := &QuotaAdmission{cached: server, client: server, writers: map[string]*reservationWriter{}}
				space := countedSpace(limit, resourceList("pods", test.used), test.reservations...)
				observed, err := q.reclaimRoom(t.Context(), space, test.change)
				if test.want != "" {
					require.EqualError(t, err, test.want)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "6", observed["other"].ResourceVersion)
			})
		})
	}
}
