package watch

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// Written has cluster-scoped objects as the API server returned them after a write of this process, until a cache has
// them, too. A controller that compares a status with a late cache would miss that it has to take back its last write:
// no event follows that would have it compare again. The zero value is ready to use. It is safe for concurrent use.
type Written[T client.Object] struct {
	mu      sync.Mutex
	objects map[string]T
}

// Add records an object after a write. If the event of the write is past, it is kept until Latest is called.
func (w *Written[T]) Add(object T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.objects == nil {
		w.objects = map[string]T{}
	}
	w.objects[object.GetName()] = object
}

// Latest returns the object of a cache, or the one after the last write if the cache is behind. The caller must not
// change it.
func (w *Written[T]) Latest(cached T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	written, exists := w.objects[cached.GetName()]
	if !exists {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), written.GetResourceVersion())
	if err == nil && order < 0 && cached.GetUID() == written.GetUID() {
		return written
	}
	delete(w.objects, cached.GetName())
	return cached
}

// MoreThanStatus is the predicate of the same name, for a controller that uses Written. It forgets the object if the
// cache has it now.
func (w *Written[T]) MoreThanStatus(e event.UpdateEvent) bool {
	if cached, is := e.ObjectNew.(T); is {
		w.Latest(cached)
	}
	return MoreThanStatus(e)
}

// Forget removes an object that does not exist any more.
func (w *Written[T]) Forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, name)
}
