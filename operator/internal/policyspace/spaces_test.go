package policyspace

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/leadership"
)

// storedSpaces is a client that reads policy spaces.
type storedSpaces struct {
	client.Client
	byName map[string]*v1alpha1.PolicySpace
}

func (s storedSpaces) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	space, ok := s.byName[key.Name]
	if !ok {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("policyspaces").GroupResource(), key.Name)
	}
	space.DeepCopyInto(into.(*v1alpha1.PolicySpace))
	return nil
}

// delays records how long requests wait.
type delays struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	of map[string]time.Duration
}

func (d delays) AddAfter(request reconcile.Request, delay time.Duration) { d.of[request.Name] = delay }

// When a namespace moves, the policy spaces that limit usage are reconciled at once. The others, whose number of
// namespaces changes with each of thousands, wait.
func TestSpacesWithoutQuotaWaitForFurtherNamespaces(t *testing.T) {
	t.Parallel()
	limited := countedSpace(resourceList("pods", "5"), nil)
	limited.Name, limited.Spec.Parent = "limited", "south"
	queued := delays{of: map[string]time.Duration{}}
	stored := storedSpaces{byName: map[string]*v1alpha1.PolicySpace{
		"limited": limited,
		"north":   {ObjectMeta: metav1.ObjectMeta{Name: "north"}},
		"south":   {ObjectMeta: metav1.ObjectMeta{Name: "south"}},
	}}
	spaces := &Spaces{requests: queued, Leader: &leadership.Leader{Client: stored}}
	inside := func(parent string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", Labels: map[string]string{
			v1alpha1.PolicySpaceLabel: "limited", hierarchy.DepthLabel("limited"): "0", hierarchy.DepthLabel(parent): "1",
		}}}
	}
	spaces.namespaceHandler().Update(t.Context(),
		event.UpdateEvent{ObjectOld: inside("north"), ObjectNew: inside("south")}, nil)
	require.Equal(t, map[string]time.Duration{
		"limited": usageDelay, "north": statusDelay, "south": statusDelay,
	}, queued.of)
	clear(queued.of)
	spaces.namespaceHandler().Delete(t.Context(), event.DeleteEvent{Object: inside("south")}, nil)
	require.Equal(t, map[string]time.Duration{"limited": usageDelay, "south": statusDelay}, queued.of)
}

// Reservations and shares end without an event, so a policy space that has some is reconciled after each update.
func TestSpacesWithReservationsOrSharesAreReconciled(t *testing.T) {
	t.Parallel()
	queued := delays{of: map[string]time.Duration{}}
	spaces := &Spaces{requests: queued}
	for name, status := range map[string]v1alpha1.PolicySpaceStatus{
		"usage":      {Reservations: []v1alpha1.QuotaReservation{{Namespace: "ns"}}},
		"namespaces": {NamespaceReservations: []v1alpha1.NamespaceReservation{{Name: "ns"}}},
		"share":      {SharedWith: []v1alpha1.PolicySpaceShare{{Name: "usage"}}},
		"none":       {Namespaces: 1},
	} {
		space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: status}
		require.True(t, spaces.enqueueEnding(event.UpdateEvent{ObjectOld: space, ObjectNew: space}))
	}
	require.Equal(t, map[string]time.Duration{
		"usage": statusDelay, "namespaces": statusDelay, "share": statusDelay,
	}, queued.of)
}
