package why

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// addAuthoritative explains an object that does not exist, if templates in the namespace are authoritative for its
// kind: the operator deletes objects of the kind that no template declares. Index may be nil.
func (e *explainer) addAuthoritative(ctx context.Context, a *answer, object populate.ObjectID, index *match.Index) {
	e.addDeletion(ctx, a)
	if index == nil {
		return
	}
	if ns, err := e.cluster.Namespace(ctx, a.Namespace); err == nil {
		a.addDeleting(ns, index.Match(ns), object)
	}
}

// addDeleting adds because of which of the templates that select a namespace an object is deleted that none declares,
// if it is.
func (a *answer) addDeleting(
	ns *corev1.Namespace, templates []*v1alpha1.NamespaceTemplate, object populate.ObjectID,
) {
	template, kind := populate.DeletingUndeclared(ns, templates, object), object.Kind
	if template == nil {
		return
	}
	a.Summary = fmt.Sprintf("%s does not exist: template %s is authoritative for the kind %s in the namespace, and "+
		"declares no such object", a.where(), template.Name, kind)
	a.add(labelDecidedBy, fmt.Sprintf("template %s, because of which the operator deletes each %s that no template "+
		"declares", template.Name, kind))
	a.replace(labelRemedy, "Declare the object in a template that selects the namespace, or in the tree of policies. "+
		"An object that a user creates is deleted again.")
}

// addDeletion adds when the operator deleted an object because no template declares it, if an Event still says so.
func (e *explainer) addDeletion(ctx context.Context, a *answer) {
	events, err := cluster.List[eventsv1.Event](ctx, e.cluster, eventsv1.SchemeGroupVersion.WithResource("events"),
		a.Namespace, metav1.ListOptions{FieldSelector: "reason=" + populate.FindingUndeclaredDeleted})
	if err != nil {
		return // the answer does not depend on it
	}
	var last *eventsv1.Event
	for _, event := range events {
		isLater := last == nil || timeOfEvent(last).Before(timeOfEvent(event))
		if isLater && strings.HasPrefix(event.Note, a.Subject+": ") {
			last = event
		}
	}
	if last != nil {
		a.add(labelState, fmt.Sprintf("an Event of %s ago says: %s",
			duration.HumanDuration(time.Since(timeOfEvent(last))), last.Note))
	}
}

// timeOfEvent returns when an Event happened for the last time.
func timeOfEvent(event *eventsv1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	case !event.DeprecatedLastTimestamp.IsZero():
		return event.DeprecatedLastTimestamp.Time
	}
	return event.CreationTimestamp.Time
}
