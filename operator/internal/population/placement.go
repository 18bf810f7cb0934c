package population

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// updatePlacement returns a namespace with the depth labels that it should have. If they cannot change, misplaced
// says why: a hierarchy.BrokenError or a hierarchy.NotAdoptedError. The namespace is nil if it has to wait.
func (r *Namespaces) updatePlacement(
	ctx context.Context, ns *corev1.Namespace,
) (placed *corev1.Namespace, misplaced, err error) {
	placed, misplaced = r.Contributors.Placement.Placed(ctx, ns)
	_, isBroken := errors.AsType[*hierarchy.BrokenError](misplaced)
	if misplaced != nil && !isBroken && !isNotAdopted(misplaced) {
		return nil, nil, misplaced
	}
	// A namespace that moves gets the objects of new templates in the same plan that deletes those of old ones, so all
	// templates that were written before the move must be known, as far as they select it.
	if placed != ns && len(hierarchy.OwnDepthLabels(ns)) > 0 {
		wait, err := r.Templates.Current(ctx, r.Contributors.Placement.AsOf(ns), ns, placed)
		if err != nil {
			return nil, nil, err
		}
		if wait > 0 {
			r.Queue.Enqueue(queue.Opening, wait, ns.Name)
			return nil, nil, nil
		}
		if shared, err := r.Contributors.Placement.Share(ctx, ns, placed); err != nil {
			return nil, nil, err
		} else if !shared {
			r.Queue.Enqueue(queue.Opening, requeueSoon, ns.Name)
			return nil, nil, nil
		}
	}
	return placed, misplaced, nil
}
