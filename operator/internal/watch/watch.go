// Package watch contains what several controllers share to follow objects whose status they write: a predicate, and the
// objects that they wrote.
package watch

import (
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/event"
)

// MoreThanStatus reports whether an update changed more than an object's status, which the controllers write
// themselves. The deletion of an object with finalizers changes its generation.
func MoreThanStatus(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
		e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
}
