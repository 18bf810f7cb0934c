package reporting

import (
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Kstatus is the status of an object in the words of kstatus, the library by which Flux and Argo CD read conditions.
type Kstatus string

// The statuses.
const (
	// Current means that the object is in force as it is stored.
	Current Kstatus = "Current"
	// InProgress means that the operator still works on the object, and no person needs to act.
	InProgress Kstatus = "InProgress"
	// Failed means that a person must act before the object can be in force.
	Failed Kstatus = "Failed"
)

// SetKstatus sets the conditions that every kind has. Ready is always present. Reconciling is present only while the
// status is InProgress, and Stalled only while it is Failed; both are True then. All have the reason and the message,
// and describe the object of this generation. The caller sets status.observedGeneration to the same generation.
func SetKstatus(conditions *[]metav1.Condition, generation int64, status Kstatus, reason, message string) {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionReady, ObservedGeneration: generation, Status: metav1.ConditionFalse,
		Reason: reason, Message: Shorten(message),
	}
	if status == Current {
		condition.Status = metav1.ConditionTrue
	}
	apimeta.SetStatusCondition(conditions, condition)
	condition.Status = metav1.ConditionTrue
	for kind, holds := range map[string]bool{
		v1alpha1.ConditionReconciling: status == InProgress,
		v1alpha1.ConditionStalled:     status == Failed,
	} {
		if !holds {
			apimeta.RemoveStatusCondition(conditions, kind)
			continue
		}
		condition.Type = kind
		apimeta.SetStatusCondition(conditions, condition)
	}
}
