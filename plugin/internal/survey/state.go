package survey

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// State is the state of a namespace, or of a template in a namespace. All commands say the same about a namespace.
type State string

// The states that StateOf returns.
const (
	// Failed is for a namespace that is not populated until a person acts.
	Failed State = "Failed"
	// Drifted is for a namespace with objects that other clients changed, deleted or added, and that the operator does
	// not correct, or corrects less and less often.
	Drifted State = "Drifted"
	// Unknown is for a populated namespace of which it is unknown whether it has drifted: its condition has room for
	// failures only, of objects without which it counts as populated.
	Unknown State = "Unknown"
	// Retrying is for a namespace that is not populated, and that the operator tries again.
	Retrying State = "Retrying"
	// Held is for a namespace that has not failed, and that waits for initializers.
	Held State = "Held"
	// NotReported is for a namespace that has no Populated condition. Maybe no template selects it.
	NotReported State = "NotReported"
	OptedOut    State = "OptedOut"
	// InOrder is for a namespace that is populated, of which nothing worse is known.
	InOrder State = "Populated"
	// Excluded is for a namespace that is never populated, or that is being deleted.
	Excluded State = "Excluded"
)

// Patience is the age from which an object is reported that is being initialized, deleted or observed for the first
// time. Most are ready within a second.
const Patience = time.Minute

// StateOf returns the state of a namespace, by its Populated condition and its initializers.
func StateOf(ns *corev1.Namespace) State {
	condition := populate.PopulatedCondition(ns)
	switch {
	case match.OptedOut(ns):
		return OptedOut
	case UnpopulatedReason(ns) != "":
		return Excluded
	case condition != nil && populate.HasFailed(condition):
		return Failed
	case condition != nil && condition.Status != corev1.ConditionTrue:
		return Retrying
	case initialize.Initializing(ns):
		return Held
	case condition == nil:
		return NotReported
	case slices.ContainsFunc(populate.ReportedFindings(condition), IsDrift):
		return Drifted
	case populate.MayLackDrift(condition):
		return Unknown
	}
	return InOrder
}

// UnpopulatedReason returns the reason why no template populates a namespace, or "" if templates may. What flags of the
// operator exclude is known once the operator has reported it.
func UnpopulatedReason(ns *corev1.Namespace) string {
	if reason := match.UnpopulatedReason(ns); reason != "" {
		return reason
	}
	if reported := populate.PopulatedCondition(ns); reported != nil && reported.Reason == populate.ConditionExcluded {
		return reported.Message
	}
	return ""
}

// Matching returns the templates that populate a namespace, or the reason why none does.
func Matching(index *match.Index, ns *corev1.Namespace) (templates []*v1alpha1.NamespaceTemplate, unpopulated string) {
	if reason := UnpopulatedReason(ns); reason != "" {
		return nil, reason
	}
	return index.Match(ns), ""
}

// IsDrift reports whether a finding is about an object that another client changed, deleted or added, or that admission
// alters, and that does not keep the namespace from being populated.
func IsDrift(reported populate.Reported) bool {
	return reported.Severity != populate.Error && populate.IsDrift(reported.Reason)
}
