package population

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// place returns a namespace with the labels that say where it is, or why it keeps those that it has: misplaced is a
// hierarchy.BrokenError, a hierarchy.NotAdoptedError or nil. The namespace is nil if it must wait: one that moves must
// find all templates that it is to inherit.
func (r *Namespaces) place(ctx context.Context, ns *corev1.Namespace) (placed *corev1.Namespace, misplaced, err error) {
	placed, misplaced = r.Spaces.Place(ctx, ns)
	_, isBroken := errors.AsType[*hierarchy.BrokenError](misplaced)
	if misplaced != nil && !isBroken && !isNotAdopted(misplaced) {
		return nil, nil, misplaced
	}
	// It gets the objects of templates that are new to it together with losing those of others, so all templates that
	// were written before the move must be known.
	if placed != ns && len(hierarchy.OwnDepthLabels(ns)) > 0 {
		current, err := r.Templates.Current(ctx, r.Spaces.AsOf(ns))
		if err != nil {
			return nil, nil, err
		}
		if !current {
			r.Queue.AddWaiting(ns.Name, requeueSoon)
			return nil, nil, nil
		}
		if shared, err := r.Spaces.Share(ctx, ns, placed); err != nil {
			return nil, nil, err
		} else if !shared {
			r.Queue.AddWaiting(ns.Name, requeueSoon)
			return nil, nil, nil
		}
	}
	return placed, misplaced, nil
}
