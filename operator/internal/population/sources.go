package population

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// sourcesPatience is how long all templates wait at the start for the first answers about sources. Afterwards, only
// those wait that copy a source without an answer.
const sourcesPatience = time.Second

// follow begins to follow the sources of a revision of a template. The error is objects.ErrPending as long as the first
// answer about one of them is expected, so that no namespace reports a source that is about to be read.
func (r *Templates) follow(template string, spec *v1alpha1.NamespaceTemplateSpec) error {
	refs := render.SourceRefs(spec)
	if len(refs) == 0 {
		return nil
	}
	r.Sources.Add(template, refs)
	if r.Sources.Pending(refs) {
		return fmt.Errorf("sources: %w", objects.ErrPending)
	}
	return nil
}

// queueCopies queues the namespaces of templates that copy a source which changed. It is not a revision of the
// templates, so all namespaces are populated again, whichever revision they have.
func (r *Templates) queueCopies(ctx context.Context, templates []string) {
	for _, name := range templates {
		namespaces, err := r.Rollouts.selectedBy(r.Index.Layers(name))
		if err != nil { // the namespaces are read from memory, so this happens only at the end of the process
			ctrl.LoggerFrom(ctx).Error(err, "the copies of a source are not updated", "template", name)
			continue
		}
		for _, ns := range namespaces {
			if isWaiting(ns) {
				r.Queue.Enqueue(queue.Opening, 0, ns.Name)
			} else {
				r.Queue.Enqueue(queue.Rollout, 0, ns.Name)
			}
		}
	}
}
