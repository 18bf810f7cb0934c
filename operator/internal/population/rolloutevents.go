package population

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// recordRollout records an Event about the template when the state of its newest revision changed. A template whose
// first revision is complete at once has no Event.
func (r *Rollouts) recordRollout(template *v1alpha1.NamespaceTemplate, before []v1alpha1.TemplateRevision) {
	r.Metrics.rollout(template)
	if len(template.Status.Revisions) == 0 {
		return
	}
	newest, wave, state := template.Status.Revisions[0], int32(0), v1alpha1.RolloutState("")
	if len(before) > 0 && before[0].Name == newest.Name {
		wave, state = before[0].Wave, before[0].State
	}
	kind := corev1.EventTypeNormal
	var note string
	switch {
	case newest.State == state && newest.Wave == wave, state == "" && newest.State == v1alpha1.RolloutComplete:
		return
	case newest.State == v1alpha1.RolloutStopped:
		kind = corev1.EventTypeWarning
		// Status.Namespaces.Failed also counts failures that stop no rollout.
		note = "stopped, because namespaces failed"
	case newest.State == v1alpha1.RolloutComplete:
		note = "has reached every namespace"
		if failed := template.Status.Namespaces.Failed; failed > 0 {
			note += fmt.Sprintf(", but %d could not be populated", failed)
		}
	case newest.State == v1alpha1.RolloutProgressing && len(newest.Waves) > 0:
		note = fmt.Sprintf("wave %d of %d began", newest.Wave+1, len(newest.Waves)+1)
	case newest.State == v1alpha1.RolloutProgressing:
		note = "began"
	case newest.State == v1alpha1.RolloutWaiting:
		note = fmt.Sprintf("waits %s after wave %d of %d",
			reporting.Count(int(newest.Waves[newest.Wave].PauseSeconds), "second"), newest.Wave+1, len(newest.Waves)+1)
	default:
		note = "is paused"
	}
	r.Recorder.Eventf(template, nil, kind, "Rollout"+string(newest.State), "RollOut", "revision %d: %s",
		newest.Revision, note)
}
