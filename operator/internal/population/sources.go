package population

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/sources"
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

// newSources returns a store of the sources of templates. A change of what waits is only in the templates' statuses.
func (r *Templates) newSources(ctx context.Context, o Options, mapper meta.RESTMapper) *sources.Store {
	return sources.New(ctx, sources.Options{
		Objects: o.Objects, Changes: o.Metadata, Mapper: mapper,
		Rules:   func() (*attributes.Rules, error) { return o.Contributors.Rules.Rules(ctx) },
		Changed: func(templates []string) { r.queueCopies(ctx, templates) },
		Copies:  r.countCopies,
		Largest: r.largestCopy,
		Delayed: func(templates []string) {
			for _, name := range templates {
				r.Requests.AddWithOpts(priorityqueue.AddOpts{After: statusDelay},
					reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
			}
		},
	})
}

// countCopies returns how many copies templates have of a source, in all revisions that are in force, and how many of
// them may have a size.
func (r *Templates) countCopies(ref render.SourceRef, size int, templates []string) (all, allowed int) {
	for _, name := range templates {
		layers := r.Index.Layers(name)
		most, largest := copiesOf(layers, ref)
		namespaces, err := r.Rollouts.selectedBy(layers)
		if err != nil {
			continue // the namespaces are read from memory, so this happens only at the end of the process
		}
		all += most * len(namespaces)
		if size <= largest {
			allowed += most * len(namespaces)
		}
	}
	return all, allowed
}

// largestCopy returns the largest size that one of some templates allows a source, in bytes.
func (r *Templates) largestCopy(ref render.SourceRef, templates []string) (largest int) {
	for _, name := range templates {
		_, allows := copiesOf(r.Index.Layers(name), ref)
		largest = max(largest, allows)
	}
	return largest
}

// copiesOf returns how many copies a template has of a source in a namespace, and the size that it allows, in the
// revision in force that has or allows most.
func copiesOf(layers rollout.Layers, ref render.SourceRef) (most, largest int) {
	for i := range layers {
		copies, allows := populate.CopiesOf(&layers[i].Template.Spec, ref)
		most, largest = max(most, copies), max(largest, allows)
	}
	return most, largest
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
