package watch

import (
	"context"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OnChange calls a function for each change of a cached object of a kind, as ChangeHandler does.
func OnChange[T client.Object](ctx context.Context, cached cache.Cache, kind T, changed func(before, after T)) error {
	informer, err := cached.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(ChangeHandler(changed))
	return err
}

// ChangeHandler returns a handler that calls a function with an object before and after each change. Before is nil if
// the object is new, and after if it was deleted.
func ChangeHandler[T client.Object](changed func(before, after T)) *toolscache.ResourceEventHandlerFuncs {
	var none T
	return &toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changed(none, object.(T)) },
		UpdateFunc: func(old, updated any) { changed(old.(T), updated.(T)) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			if deleted, ok := object.(T); ok {
				changed(deleted, none)
			}
		},
	}
}
