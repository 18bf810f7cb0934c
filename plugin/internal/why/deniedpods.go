package why

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/workload"
)

// addDeniedPods explains why the pods of a workload could not be created. The controllers of Deployments and
// ReplicaSets copy the message of the API server to a condition, and those of other workloads only to Events.
func (e *explainer) addDeniedPods(ctx context.Context, a *answer, live *unstructured.Unstructured) {
	if workload.PodTemplate(live) == nil || live.GetKind() == "Pod" {
		return
	}
	if message := replicaFailure(live); message != "" {
		a.Summary += ". Its pods cannot be created"
		a.replace(labelRemedy, "")
		e.addDenial(ctx, a, message)
		return
	}
	if slices.Contains([]string{"Deployment", "ReplicaSet", "ReplicationController"}, live.GetKind()) {
		return
	}
	failed := e.lastFailedCreation(ctx, live)
	if failed == nil {
		return
	}
	a.Summary += fmt.Sprintf(". Its pods could not be created %s ago",
		duration.HumanDuration(time.Since(timeOfEvent(failed))))
	a.replace(labelRemedy, "")
	e.addDenial(ctx, a, beforeDenial.ReplaceAllString(failed.Note, ""))
}

// beforeDenial matches what the controllers of workloads write before the message of the API server.
var beforeDenial = regexp.MustCompile(`^(?:\(combined from similar events\): )?` +
	`(?:Error creating(?: job)?: |(?i:create) (?:Claim \S+ for )?Pod \S+ in StatefulSet \S+ failed error: )`)

// replicaFailure returns the message of the API server in the condition ReplicaFailure of a workload whose pods cannot
// be created, or "".
func replicaFailure(live *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		isCreation := condition["type"] == "ReplicaFailure" && condition["reason"] == failedCreate
		if message, _ := condition["message"].(string); isCreation && condition["status"] == "True" {
			return message
		}
	}
	return ""
}

// Reasons of conditions and Events of Kubernetes' controllers.
const failedCreate, successfulCreate = "FailedCreate", "SuccessfulCreate"

// lastFailedCreation returns the last Event that says that a pod of a workload, or a Job of a CronJob or its pod, could
// not be created. It returns nil if no Event says so, or if a later one says that one could: a pod of a later Job, too.
func (e *explainer) lastFailedCreation(ctx context.Context, live *unstructured.Unstructured) *eventsv1.Event {
	options := metav1.ListOptions{FieldSelector: "regarding.uid=" + string(live.GetUID())}
	ofCronJob := regexp.MustCompile("^" + regexp.QuoteMeta(live.GetName()) + `-\d+$`)
	isCronJob := live.GetKind() == "CronJob"
	if isCronJob {
		options.FieldSelector = "" // the Events about its Jobs, too
	}
	events, err := cluster.List[eventsv1.Event](ctx, e.cluster, eventsv1.SchemeGroupVersion.WithResource("events"),
		live.GetNamespace(), options)
	if e.isUnread(err, "events in namespace "+live.GetNamespace()+", so it is unknown whether the pods were denied", "") {
		return nil
	}
	// Many Events have whole seconds: of those of one second, a success counts as the later one.
	slices.SortFunc(events, func(x, y *eventsv1.Event) int {
		return cmp.Or(timeOfEvent(x).Compare(timeOfEvent(y)), strings.Compare(x.Reason, y.Reason))
	})
	var last *eventsv1.Event
	for _, event := range events {
		about := event.Regarding
		switch {
		case about.UID != live.GetUID() && (!isCronJob || about.Kind != "Job" || !ofCronJob.MatchString(about.Name)):
		case event.Reason == failedCreate:
			last = event
		case event.Reason == successfulCreate && last != nil && last.Regarding.Kind == about.Kind:
			last = nil
		}
	}
	return last
}
