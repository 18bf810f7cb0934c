package namespace

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// state says how urgently a namespace needs a person.
type state string

// The states.
const (
	// failing is for a namespace that is not populated until a person acts.
	failing state = "Failing"
	// held is for a namespace that is populated, and that still waits for other initializers.
	held state = "Held"
	// drifted is for a namespace with objects that other clients changed or deleted, and that the operator leaves so,
	// or corrects less and less often.
	drifted state = "Drifted"
	// unknown is for a populated namespace of which it is unknown whether it has drifted.
	unknown state = "Unknown"
	// pending is for a namespace that is not populated yet.
	pending state = "Pending"
	// settled is for all other namespaces: they are populated, or not meant to be.
	settled state = "Settled"
)

// states has the states in the order of their urgency.
var states = []state{failing, held, drifted, unknown, pending, settled}

// byUrgency orders statuses by their state, and then by their names.
func byUrgency(a, b namespaceStatus) int {
	return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)),
		strings.Compare(a.Namespace, b.Namespace))
}

// needsAttention reports whether a namespace is not as templates declare it, or takes no writes.
func (s *namespaceStatus) needsAttention() bool { return s.State != settled }

// setReported sets what the Populated condition of a namespace says.
func (s *namespaceStatus) setReported(ns *corev1.Namespace, condition *corev1.NamespaceCondition) {
	s.Populated, s.Reason, s.Message = string(condition.Status), condition.Reason, condition.Message
	s.Since, s.State = output.UTC(condition.LastTransitionTime), settled
	switch survey.StateOf(ns) {
	case survey.Failed:
		s.State = failing
	case survey.Retrying:
		s.State = pending
	case survey.Held:
		s.State, s.Reason, s.Since = held, "Waiting", output.UTC(ns.CreationTimestamp)
		s.Message = waitsFor(ns) + "; " + condition.Message
	case survey.Drifted:
		// The condition has the time at which the namespace was populated, and not that of the drift.
		s.State, s.Reason, s.Since = drifted, "Drifted", nil
	case survey.Unknown:
		s.State, s.Reason, s.Since = unknown, "Unknown", nil
	case survey.NotReported, survey.OptedOut, survey.InOrder, survey.Excluded:
	}
}

// waitsFor says which initializers a held namespace waits for.
func waitsFor(ns *corev1.Namespace) string {
	return "held: writes wait for " + cmp.Or(strings.Join(initialize.Pending(ns), ", "), "the operator")
}

// noteCauses prints why namespaces need attention. The wide table has the messages already.
func (o *status) noteCauses(statuses []namespaceStatus) {
	if o.output.Format != "" {
		return
	}
	var causes []string
	for i := range statuses {
		if s := &statuses[i]; s.needsAttention() && s.Message != "" {
			causes = append(causes, fmt.Sprintf("namespace/%s: %s", s.Namespace, s.Message))
		}
	}
	o.noteFirst(causes, "%d more namespaces need attention: -o wide shows why")
}
