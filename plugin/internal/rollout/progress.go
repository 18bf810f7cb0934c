package rollout

import (
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// progress is how far the rollout of a template has come.
type progress struct {
	// line describes the progress in one line.
	line string
	// isDone reports whether the rollout is complete.
	isDone bool
	// note is about namespaces that failed although the rollout is complete. It can be empty.
	note string
}

// newProgress returns how far the newest rollout of a template has come. It returns an error if the rollout cannot go
// on by itself, or if pinned is neither 0 nor the number of the newest revision.
func newProgress(template *v1alpha1.NamespaceTemplate, pinned int64) (progress, error) {
	status := template.Status
	if template.DeletionTimestamp != nil {
		return progress{}, fmt.Errorf("template %q is being deleted", template.Name)
	}
	// The status keeps the state of the rollout from before the template was disabled.
	if disabled := match.DisabledReason(template); disabled != "" {
		return progress{}, fmt.Errorf("template %q selects no namespaces, and is not rolled out: %s", template.Name,
			disabled)
	}
	if why := rollout.NotStored(template); why != "" {
		return progress{line: fmt.Sprintf("Waiting for template spec update to be observed: %s...", why)}, nil
	}
	if status.ObservedGeneration < template.Generation {
		return progress{line: "Waiting for template spec update to be observed..."}, nil
	}
	accepted := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplateAccepted)
	if accepted != nil && accepted.Status == metav1.ConditionFalse {
		return progress{}, fmt.Errorf("template %q is not accepted, so it is not rolled out: %s", template.Name,
			accepted.Message)
	}
	if len(status.Revisions) == 0 {
		return progress{line: "Waiting for template rollout to begin..."}, nil
	}
	newest := &status.Revisions[0]
	if newest.RestartedAt != template.Annotations[v1alpha1.RestartedAtAnnotation] {
		return progress{line: "Waiting for template restart to be observed..."}, nil
	}
	if pinned != 0 && pinned != newest.Revision {
		return progress{}, fmt.Errorf("desired revision (%d) is different from the running revision (%d)", pinned,
			newest.Revision)
	}
	switch newest.State {
	case v1alpha1.RolloutComplete:
		if isPopulating(template) {
			break // a rollback is complete at once, before the namespaces are populated with it
		}
		return progress{
			line:   completeLine(template),
			isDone: true,
			note:   failuresNote(status),
		}, nil
	case v1alpha1.RolloutStopped:
		return progress{}, stoppedError(template, newest)
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutWaiting, v1alpha1.RolloutPaused, v1alpha1.RolloutSuperseded:
	}
	line := fmt.Sprintf("Waiting for template %q rollout to finish: %s", template.Name, underway(template, newest))
	if failures := failuresNote(status); failures != "" {
		line += "; " + failures // they may hold the rollout until they pass
	}
	return progress{line: line + "..."}, nil
}

// completeLine says that a rollout is complete, and how many namespaces failed nevertheless.
func completeLine(template *v1alpha1.NamespaceTemplate) string {
	counts := template.Status.Namespaces
	if counts.Failed == 0 {
		return fmt.Sprintf("template %q successfully rolled out", template.Name)
	}
	return fmt.Sprintf("template %q rolled out, but %d of %s failed", template.Name, counts.Failed,
		output.Count(int(counts.Matched), "namespace"))
}

// isPopulating reports whether a namespace was not populated yet with the revision that has reached it.
func isPopulating(template *v1alpha1.NamespaceTemplate) bool {
	populated := apimeta.FindStatusCondition(template.Status.Conditions, v1alpha1.TemplatePopulated)
	return populated != nil && populated.Status == metav1.ConditionFalse && populated.Reason == "Populating"
}

// underway describes a rollout that goes on by itself or with "rollout resume".
func underway(template *v1alpha1.NamespaceTemplate, newest *v1alpha1.TemplateRevision) string {
	counts := template.Status.Namespaces
	updated := fmt.Sprintf("%d of %d namespaces have been updated", counts.Updated, counts.Matched)
	waves := newest.Waves
	number := min(int(newest.Wave)+1, len(waves)+1)
	switch {
	case newest.State == v1alpha1.RolloutPaused:
		return fmt.Sprintf("%s, and the rollout is paused: run 'kubectl nstpl rollout resume %s' to continue", updated,
			template.Name)
	case newest.State == v1alpha1.RolloutWaiting && newest.WaveTime != nil && number <= len(waves):
		pause := time.Duration(waves[number-1].PauseSeconds) * time.Second
		return fmt.Sprintf("%s (wave %d of %d is complete, the next begins at %s)", updated, number, len(waves)+1,
			newest.WaveTime.Add(pause).UTC().Format(time.RFC3339))
	case counts.Updated >= counts.Matched:
		return fmt.Sprintf("%d of %d updated namespaces are populated", counts.Populated, counts.Matched)
	case len(waves) > 0:
		return fmt.Sprintf("%s (wave %d of %d)", updated, number, len(waves)+1)
	}
	return updated
}

// stoppedError says why a rollout stopped, and which commands help.
func stoppedError(template *v1alpha1.NamespaceTemplate, newest *v1alpha1.TemplateRevision) error {
	counts := template.Status.Namespaces
	var text strings.Builder
	fmt.Fprintf(&text, "rollout of revision %d of template %q stopped after %d of %s: %s", newest.Revision,
		template.Name, counts.Updated, output.Count(int(counts.Matched), "namespace"), failed(counts, newest))
	for _, failure := range template.Status.Failures {
		fmt.Fprintf(&text, "\n  %s", failureLine(failure))
	}
	if newest.Revision > 1 {
		fmt.Fprintf(&text, "\nTo take the change back: kubectl nstpl rollout undo %s", template.Name)
	}
	fmt.Fprintf(&text, "\nAfter you corrected the cause: kubectl nstpl rollout restart %s", template.Name)
	return fmt.Errorf("%s", text.String())
}

// failed says how many namespaces failed, and how many had failed before the rollout, which may be others.
func failed(counts v1alpha1.NamespaceCounts, newest *v1alpha1.TemplateRevision) string {
	text := output.Count(int(counts.Failed), "namespace") + " failed"
	if newest.FailedBefore > 0 {
		text += fmt.Sprintf(" (%d had failed before the rollout)", newest.FailedBefore)
	}
	return text
}

// failuresNote says which namespaces failed, or is empty if none did.
func failuresNote(status v1alpha1.NamespaceTemplateStatus) string {
	if status.Namespaces.Failed == 0 {
		return ""
	}
	parts := []string{output.Count(int(status.Namespaces.Failed), "namespace") + " failed"}
	for _, failure := range status.Failures {
		parts = append(parts, failureLine(failure))
	}
	return strings.Join(parts, "; ")
}

// failureLine returns a failure in one line, such as "resourcequota/budget in a, b and 3 more: message".
func failureLine(failure v1alpha1.ObjectFailure) string {
	where := output.WithMore(failure.Namespaces, int(failure.Count))
	message := strings.ReplaceAll(failure.Message, "\n", " ")
	if failure.Object == "" {
		return fmt.Sprintf("in %s: %s", where, message)
	}
	return fmt.Sprintf("%s in %s: %s", failure.Object, where, message)
}
