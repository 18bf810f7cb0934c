package reporting

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// read returns the status of an object by the rules of kstatus (sigs.k8s.io/cli-utils/pkg/kstatus), which Flux and
// Argo CD follow: an older observedGeneration is InProgress; then the first of Reconciling and Stalled that is True
// decides; then Ready does, and Ready=False alone is InProgress.
func read(generation, observed int64, conditions []metav1.Condition) Kstatus {
	if observed != generation {
		return InProgress
	}
	for _, condition := range conditions {
		switch {
		case condition.Status != metav1.ConditionTrue:
		case condition.Type == v1alpha1.ConditionReconciling:
			return InProgress
		case condition.Type == v1alpha1.ConditionStalled:
			return Failed
		}
	}
	if ready := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil &&
		ready.Status != metav1.ConditionTrue {
		return InProgress
	}
	return Current
}

// TestSetKstatus sets each status after each other one, and in an empty list.
func TestSetKstatus(t *testing.T) {
	t.Parallel()
	accepted := metav1.Condition{
		Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", Message: "of its kind",
		LastTransitionTime: metav1.NewTime(time.Unix(1, 0)),
	}
	for _, before := range []Kstatus{"", Current, InProgress, Failed} {
		for status, want := range map[Kstatus]map[string]metav1.ConditionStatus{
			Current: {"Accepted": metav1.ConditionTrue, "Ready": metav1.ConditionTrue},
			InProgress: {
				"Accepted": metav1.ConditionTrue, "Ready": metav1.ConditionFalse, "Reconciling": metav1.ConditionTrue,
			},
			Failed: {
				"Accepted": metav1.ConditionTrue, "Ready": metav1.ConditionFalse, "Stalled": metav1.ConditionTrue,
			},
		} {
			t.Run(string(before)+" to "+string(status), func(t *testing.T) {
				t.Parallel()
				conditions := []metav1.Condition{accepted}
				if before != "" {
					SetKstatus(&conditions, 1, before, "Before", "before")
				}
				SetKstatus(&conditions, 2, status, "Reason", "message")

				got := map[string]metav1.ConditionStatus{}
				for _, condition := range conditions {
					got[condition.Type] = condition.Status
				}
				require.Equal(t, want, got)
				require.Len(t, conditions, len(want), "no condition is there twice")
				require.Contains(t, conditions, accepted, "conditions of the kind stay as they are")
				for _, condition := range conditions {
					if condition.Type != "Accepted" {
						require.Equal(t, "Reason", condition.Reason)
						require.Equal(t, "message", condition.Message)
						require.EqualValues(t, 2, condition.ObservedGeneration)
						require.False(t, condition.LastTransitionTime.IsZero())
					}
				}
				require.Equal(t, status, read(2, 2, conditions))
				slices.Reverse(conditions)
				require.Equal(t, status, read(2, 2, conditions), "the order of conditions has no meaning")
				require.Equal(t, InProgress, read(3, 2, conditions), "a change that is not observed yet")
			})
		}
	}
}

// TestKstatusStays sets the same status again, which must change nothing, so that a restart writes no status.
func TestKstatusStays(t *testing.T) {
	t.Parallel()
	for _, status := range []Kstatus{Current, InProgress, Failed} {
		var conditions []metav1.Condition
		SetKstatus(&conditions, 1, status, "Reason", "message")
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
		}
		before := slices.Clone(conditions)
		SetKstatus(&conditions, 1, status, "Reason", "message")
		require.Equal(t, before, conditions)
	}
}

func TestKstatusShortensMessages(t *testing.T) {
	t.Parallel()
	var conditions []metav1.Condition
	SetKstatus(&conditions, 1, Failed, "Reason", strings.Repeat("a", 2*MaxMessage))
	require.Len(t, conditions, 2)
	for _, condition := range conditions {
		require.Equal(t, Shorten(strings.Repeat("a", 2*MaxMessage)), condition.Message)
	}
}
