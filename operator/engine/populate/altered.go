package populate

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/engine/inforce"
)

// ReasonAltered is the reason for an object that the API server stored, but not as it is declared.
const ReasonAltered metav1.StatusReason = "Altered"

// AlteredField returns the first declared field that is not stored as it is declared, or nil. Metadata does not show
// that: the API server records the fields that a client applies, even if admission changes or removes them.
func AlteredField(declared *Object, stored *unstructured.Unstructured) inforce.Field {
	return inforce.Difference(declared.Unstructured, stored, appliedEntry(stored))
}

// alteredFailure returns the failure of an apply that the API server answered with an object and nstpl's managedFields
// entry, or nil if the object is stored as it is declared.
func alteredFailure(declared *Object, stored *unstructured.Unstructured, own *metav1.ManagedFieldsEntry) error {
	field := inforce.Difference(declared.Unstructured, stored, own)
	if field == nil {
		return nil
	}
	return failuref(ReasonAltered, "%s%s: mutating admission changes it whenever the object is applied: exempt the "+
		"object from that webhook or policy, or declare what it writes", messageAltered, field)
}

// Unconfirmed returns the objects that may be stored otherwise than declared, although they look as declared from now
// on: the answer to their apply was lost, or admission altered them.
func (r Result) Unconfirmed() []ObjectID {
	var ids []ObjectID
	for _, outcome := range r.Outcomes {
		if outcome.Failure != nil && outcome.Declared != nil && outcome.Metadata == nil &&
			(outcome.Failure.Reason == ReasonAltered || outcome.Failure.Unanswered()) {
			ids = append(ids, outcome.ID())
		}
	}
	return ids
}

// reasonUnconfirmed is why an object that seems to be as declared is applied again.
const reasonUnconfirmed = "may not be stored as it is declared, so it is applied again"

// unconfirmed are the objects of a namespace that may be stored otherwise than declared, although their metadata shows
// no difference. The last report on the namespace says that their apply failed, or that admission altered them: the API
// server may have carried out an apply whose answer was lost.
type unconfirmed struct {
	// objects has the reason why each of the objects is applied again.
	objects map[string]string
	// all says that the report was shortened, so that it may lack objects.
	all bool
}

// unconfirmedIn returns the unconfirmed objects of a namespace: those of its last report, and others that are known.
func unconfirmedIn(reported []Reported, known []ObjectID) unconfirmed {
	u := unconfirmed{objects: map[string]string{}}
	for _, id := range known {
		u.objects[id.String()] = reasonUnconfirmed
	}
	for _, finding := range reported {
		isFailure := finding.Severity == Error || finding.Reason == FindingFailed || finding.Reason == FindingAltered
		switch {
		case isFailure && finding.IsAltered():
			u.objects[finding.Object] = finding.Message
		case isFailure && finding.Object != "":
			u.objects[finding.Object] = reasonUnconfirmed
		}
		u.all = isFailure && strings.HasSuffix(finding.Message, "…")
	}
	return u
}

// IsAltered reports whether the finding is about an object that is not stored as it is declared.
func (r Reported) IsAltered() bool { return strings.HasPrefix(r.Message, messageAltered) }

// confirm plans that an object which seems to be as declared is applied again if it is unconfirmed.
func (u unconfirmed) confirm(change Change) Change {
	reason, isUnconfirmed := u.objects[change.ID().String()]
	if change.Action == Unchanged && (u.all || isUnconfirmed) {
		change.Action, change.Reason = Configure, cmp.Or(reason, reasonUnconfirmed)
	}
	return change
}
