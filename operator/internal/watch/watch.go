// Package watch contains what several controllers share to follow objects whose status they write.
package watch

import (
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"nstpl.dev/nstpl/operator/freshness"
)

// MoreThanStatus reports whether an update changed more than an object's status, which the controllers write
// themselves. The deletion of an object with finalizers changes its generation.
func MoreThanStatus(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
		!maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		!slices.Equal(before.GetFinalizers(), after.GetFinalizers())
}

// MoreThanOwnStatus is the predicate with MoreThanStatus, for a controller that keeps what it writes in a store, by
// name. It tells the store what the cache has.
func MoreThanOwnStatus[T client.Object](written *freshness.Store[string, T]) predicate.Funcs {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			written.Observed(e.ObjectNew.GetName(), e.ObjectNew.GetResourceVersion())
			return MoreThanStatus(e)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			written.Deleted(e.Object.GetName(), e.Object.GetUID())
			return true
		},
	}
}
