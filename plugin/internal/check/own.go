package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// exceeded is the condition of a PolicySpace that reports whether its namespaces use more than its quota.
const exceeded = "Exceeded"

// checkOwn checks whether the objects of nstpl's kinds are in force.
func checkOwn(a *after) []Result {
	j := judgement{check: "objects"}
	var forbidden []string
	var denial error
	total := 0
	for _, resource := range ownResources {
		switch found := a.own[resource.Resource]; {
		case apierrors.IsNotFound(found.err): // another check says that the definition is missing
		case apierrors.IsForbidden(found.err):
			forbidden, denial = append(forbidden, resource.Resource), found.err
		case found.err != nil:
			j.results = append(j.results, unread(j.check, "list "+resource.Resource, found.err))
		default:
			total += len(found.value)
			j.results = append(j.results, judgeOwn(resource.Resource, found.value, a.now())...)
		}
	}
	if len(forbidden) > 0 {
		j.results = append(j.results, unread(j.check, "list "+output.FirstFew(forbidden), denial))
	}
	return j.orOK(output.Count(total, "object") + " of nstpl's kinds, and none has a problem")
}

// judgeOwn returns the results for the objects of a kind that have a problem.
func judgeOwn(resource string, objects []*ownObject, now time.Time) []Result {
	var stalled, late, over, deleted []*ownObject
	for _, object := range objects {
		conditions := object.Status.Conditions
		switch ready := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionReady); {
		case object.DeletionTimestamp != nil:
			if now.Sub(object.DeletionTimestamp.Time) > survey.Patience {
				deleted = append(deleted, object)
			}
		case object.isOutdated():
			if object.isStalled() || now.Sub(object.edited) > survey.Patience {
				late = append(late, object)
			}
		case object.isStalled():
			stalled = append(stalled, object)
		case ready == nil:
			if now.Sub(object.CreationTimestamp.Time) > survey.Patience {
				late = append(late, object)
			}
		case ready.Status != metav1.ConditionTrue:
			if now.Sub(ready.LastTransitionTime.Time) > survey.Patience {
				late = append(late, object)
			}
		case apimeta.IsStatusConditionTrue(conditions, exceeded):
			over = append(over, object)
		}
	}
	severity, state := Failure, "cannot be in force until a person acts"
	if resource == v1alpha1.TemplateExemptions.Resource {
		severity, state = Warning, "without effect" // it changes nothing, and may be one from a template to come
	}
	var results []Result
	for _, group := range []struct {
		status  Status
		objects []*ownObject
		state   string
	}{
		{severity, stalled, state},
		{Warning, late, "not in force yet"},
		{Warning, over, "over their limits"},
		{Warning, deleted, "waiting to be deleted"},
	} {
		if len(group.objects) > 0 {
			results = append(results, ownResult(resource, group.status, group.objects, group.state))
		}
	}
	return results
}

// ownResult returns the result for objects of a kind that have the same problem. It names three of them.
func ownResult(resource string, status Status, objects []*ownObject, state string) Result {
	slices.SortFunc(objects, func(a, b *ownObject) int { return strings.Compare(a.fullName(), b.fullName()) })
	var named []string
	for _, object := range objects[:min(len(objects), maxNamed)] {
		text := object.fullName()
		if reason := object.reason(); reason != "" {
			text += " (" + reason + ")"
		}
		named = append(named, text)
	}
	message := fmt.Sprintf("%s: %d %s: %s", resource, len(objects), state, output.WithMore(named, len(objects)))
	r := Result{
		Check: resource, Status: status, Message: message,
		Remedy: "'kubectl describe " + resource + " " + objects[0].Name + "' shows the conditions",
	}
	if objects[0].Namespace != "" {
		r.Remedy = "'kubectl describe " + resource + " " + objects[0].Name + " -n " + objects[0].Namespace +
			"' shows the conditions"
	}
	switch {
	case resource == v1alpha1.PolicyRepositories.Resource:
		r.Remedy = "'kubectl nstpl sync status' shows the causes, and what to do"
	case resource == v1alpha1.NamespaceTemplates.Resource && objects[0].isRolloutStopped() &&
		objects[0].disabledReason() == "":
		r.Remedy = "'kubectl nstpl rollout status " + objects[0].Name + "' shows the causes, and what to do"
	case resource == v1alpha1.PolicySpaces.Resource:
		r.Remedy = "'kubectl nstpl tree' shows the spaces and their quotas; " + r.Remedy
	}
	return r
}

func (o *ownObject) fullName() string {
	if o.Namespace != "" {
		return o.Namespace + "/" + o.Name
	}
	return o.Name
}

// isOutdated reports whether the conditions are about an earlier generation, so that they say nothing about this one.
func (o *ownObject) isOutdated() bool {
	ready := apimeta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.ObservedGeneration != 0 && ready.ObservedGeneration < o.Generation
}

// isStalled reports whether the generation that the conditions are about cannot be in force until a person acts.
func (o *ownObject) isStalled() bool {
	return apimeta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionStalled)
}

// isRolloutStopped reports whether an object is a template whose rollout stopped because namespaces failed.
func (o *ownObject) isRolloutStopped() bool {
	stalled := apimeta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Reason == "RolloutStopped"
}

// disabledReason returns why a template selects no namespace, or "" if it is not disabled. The status of a disabled
// template keeps the state of the rollout from before.
func (o *ownObject) disabledReason() string {
	return match.DisabledReason(&v1alpha1.NamespaceTemplate{ObjectMeta: o.ObjectMeta})
}

// reason returns why an object has a problem, by its status.
func (o *ownObject) reason() string {
	conditions := o.Status.Conditions
	text := "the operator has not reported on it"
	switch ready := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionReady); {
	case o.DeletionTimestamp != nil:
		return "finalizers: " + strings.Join(o.Finalizers, ", ")
	case o.isOutdated() && !o.isStalled():
		// The time of an edit that only removes fields is unknown, so the controller may not have had its time.
		return fmt.Sprintf("the controller has not reported on generation %d, which may be younger than %s if it only "+
			"removed fields", o.Generation, duration.HumanDuration(survey.Patience))
	case o.isRolloutStopped() && o.disabledReason() != "":
		return o.disabledReason()
	case apimeta.IsStatusConditionTrue(conditions, exceeded):
		text = apimeta.FindStatusCondition(conditions, exceeded).Message
	case ready != nil:
		text = ready.Message
	}
	if len(o.Status.Failures) > 0 {
		failure := o.Status.Failures[0]
		text += "; " + strings.TrimPrefix(failure.Object+": ", ": ") + failure.Message
	}
	if o.isOutdated() {
		text = fmt.Sprintf("the controller has not reported on generation %d, and before it: %s", o.Generation, text)
	}
	return shorten(text)
}

// maxReason is the greatest length of a reason, in characters. The whole text is in the status of the object.
const maxReason = 300

func shorten(text string) string {
	if runes := []rune(text); len(runes) > maxReason {
		return string(runes[:maxReason]) + "…"
	}
	return text
}
