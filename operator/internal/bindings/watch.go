package bindings

import (
	"context"
	"errors"
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Watch keeps an Index up to date from Start until Stop. It is safe for concurrent use.
type Watch struct {
	ctx    context.Context
	client rest.Interface

	mu      sync.Mutex
	current *running
}

// running is a started watch. stopped is closed when it ends.
type running struct {
	index   *Index
	stop    context.CancelFunc
	stopped <-chan struct{}
	stores  []*store
}

var errStopped = errors.New("the watch of rolebindings and clusterrolebindings ended before all were read: try again")

// NewWatch returns a watch that is not started. client is a client of RBAC's API group. The watch ends with ctx.
func NewWatch(ctx context.Context, client rest.Interface) *Watch {
	return &Watch{ctx: ctx, client: client}
}

// Start starts the watch unless it is running.
func (w *Watch) Start() {
	w.start()
}

func (w *Watch) start() *running {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current == nil {
		ctx, stop := context.WithCancel(w.ctx)
		index := NewIndex()
		w.current = &running{index: index, stop: stop, stopped: ctx.Done(), stores: []*store{
			w.reflect(ctx, index, "clusterrolebindings", &rbacv1.ClusterRoleBinding{}),
			w.reflect(ctx, index, "rolebindings", &rbacv1.RoleBinding{}),
		}}
	}
	return w.current
}

func (w *Watch) reflect(ctx context.Context, index *Index, resource string, kind runtime.Object) *store {
	_, isCluster := kind.(*rbacv1.ClusterRoleBinding)
	s := &store{index: index, isCluster: isCluster, synced: make(chan struct{})}
	bindings := cache.NewListWatchFromClient(w.client, resource, "", fields.Everything())
	go cache.NewReflectorWithOptions(bindings, kind, s, cache.ReflectorOptions{}).RunWithContext(ctx)
	return s
}

// Stop ends the watch and drops its Index.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil {
		w.current.stop()
		w.current = nil
	}
}

// Index returns the Index once it has all bindings. It starts the watch unless it is running, and returns an error if
// the watch is stopped meanwhile.
func (w *Watch) Index(ctx context.Context) (*Index, error) {
	running := w.start() //nolint:contextcheck // it outlives the request that starts it
	for _, store := range running.stores {
		select {
		case <-store.synced:
		case <-running.stopped:
			return nil, errStopped
		case <-ctx.Done():
			return nil, fmt.Errorf("caches not synced: rolebindings, clusterrolebindings: %w", context.Cause(ctx))
		}
	}
	return running.index, nil
}
