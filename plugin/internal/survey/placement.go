package survey

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// WithPlacement returns a placed namespace with the condition by which the operator would report why its place in the
// hierarchy of policy spaces is unknown. Misplaced is the error of hierarchy.Forest.Placed, or nil. While the place is
// unknown, the operator deletes nothing in the namespace, and plans for the namespace do not either. The stored
// condition remains if the namespace is not populated anyway, and if neither it nor misplaced is about the place: plans
// read the findings in it.
func WithPlacement(placed *corev1.Namespace, misplaced error) *corev1.Namespace {
	stored := populate.PopulatedCondition(placed)
	isStale := stored != nil && populate.IsMisplacement(stored.Reason)
	if UnpopulatedReason(placed) != "" || misplaced == nil && !isStale {
		return placed
	}
	placed = placed.DeepCopy()
	placed.Status.Conditions = nil
	if misplaced == nil {
		return placed
	}
	reason := populate.ConditionPolicySpaceNotFound
	if _, isNotAdopted := errors.AsType[*hierarchy.NotAdoptedError](misplaced); isNotAdopted {
		reason = populate.ConditionNotAdopted
	}
	placed.Status.Conditions = []corev1.NamespaceCondition{{
		Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse, Reason: reason, Message: misplaced.Error(),
	}}
	return placed
}
