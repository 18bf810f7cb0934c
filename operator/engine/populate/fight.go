package populate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/engine/render"
)

// Postpone returns the plan without the corrections of objects that wait. These objects stay as other clients made
// them until a later plan.
func (p Plan) Postpone(waits func(Change) bool) Plan {
	isPostponed := func(c Change) bool { return c.corrects() && waits(c) }
	if !slices.ContainsFunc(p.Changes, isPostponed) {
		return p
	}
	p.Changes = slices.Clone(p.Changes)
	for i := range p.Changes {
		switch change := &p.Changes[i]; {
		case !isPostponed(*change):
		case change.Metadata != nil:
			*change = change.Metadata.postponed()
		default:
			change.Action, change.Postponed = LeaveAlone, true
		}
	}
	return p
}

// postponed returns the change without the correction of values that other clients set or removed.
func (m *MetadataChange) postponed() Change {
	values := slices.Clone(m.Values)
	for i := range values {
		if values[i].corrects() {
			values[i].Action, values[i].Postponed = LeaveAlone, true
		}
	}
	return m.of(values)
}

// Subject is what two clients can fight over: an object, or a label or an annotation of the namespace.
type Subject struct {
	Object ObjectID
	// Value is the label or annotation. It is empty for all other objects.
	Value render.MetadataKey
}

// Subject returns what one of the Parts of a change is about.
func (c Change) Subject() Subject {
	subject := Subject{Object: c.ID()}
	if c.Metadata != nil {
		subject.Value = c.Metadata.Values[0].MetadataKey
	}
	return subject
}

// Parts returns a change for each label and annotation of the namespace, each with its own template, and the change
// itself if it is about another object.
func (c Change) Parts() []Change {
	if c.Metadata == nil {
		return []Change{c}
	}
	var parts []Change
	for _, value := range c.Metadata.Values {
		parts = append(parts, c.Metadata.of([]ValueChange{value}))
	}
	return parts
}

// protects are the kinds of Kubernetes that grant rights or restrict what users do.
var protects = []schema.GroupKind{
	roleKind, bindingKind, {Group: "networking.k8s.io", Kind: "NetworkPolicy"}, {Kind: "ResourceQuota"},
	{Kind: "LimitRange"},
}

// Protects reports whether a change deletes an object, or is of a kind that grants rights or restricts users. Labels of
// the namespace may do that, too.
func (c Change) Protects() bool {
	return c.Deletes() || c.Metadata != nil || slices.Contains(protects, c.Kind.GroupKind())
}

// corrects reports whether a change undoes what another client did to an object.
func (c Change) corrects() bool {
	if c.Metadata != nil {
		return slices.ContainsFunc(c.Metadata.Values, ValueChange.corrects)
	}
	return c.Differs() && c.Action != LeaveAlone && c.Action != Unknown && c.Action != Unchanged
}

// Corrected returns the parts of a write that undid what another client did.
func (o Outcome) Corrected() []Change {
	if o.Failure != nil || !o.corrects() {
		return nil
	}
	return slices.DeleteFunc(o.Parts(), func(part Change) bool { return !part.corrects() })
}

// Fought returns the finding about what another client changes again and again. The change is one of Parts, by names
// the client, if it is known, and rarest is the longest time between two corrections.
func Fought(change Change, by string, rarest time.Duration) Finding {
	finding := Finding{
		Object: change.ID(), Template: change.Template, Severity: Warning, Reason: FindingFought,
		Message: fmt.Sprintf("%s%s, so it is corrected less and less often, down to every %s: stop that client, "+
			"declare what it writes, or set driftPolicy: Report", messageFought,
			cmp.Or(by, "another client"), duration.HumanDuration(rarest)),
	}
	if change.Metadata != nil {
		finding.Message = change.Subject().Value.String() + " " + finding.Message
	}
	return finding
}

// ChangedBy returns the managers that may have changed the object of a change, or "" if none is known.
func (c Change) ChangedBy() string {
	if c.Observed == nil {
		return ""
	}
	return strings.Join(otherManagers(c.Observed), " or ")
}

// otherManagers returns the managers other than nstpl that wrote to an object, and not only to its status. The API
// server records a HorizontalPodAutoscaler and kubectl scale with the subresource scale.
func otherManagers(observed *metav1.PartialObjectMetadata) []string {
	var others []string
	for i := range observed.ManagedFields {
		entry := &observed.ManagedFields[i]
		if !IsOwnEntry(entry) && entry.Subresource != "status" && !slices.Contains(others, entry.Manager) {
			others = append(others, entry.Manager)
		}
	}
	return others
}
