package hint

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

const (
	// pause is the shortest time between two writes to a PolicyRepository.
	pause = time.Second
	// lastWrites is how long the writes may take that are left when the process ends.
	lastWrites = 5 * time.Second
)

// requests writes the annotation that asks for a synchronization. It writes once for several hints that arrive
// together. A hint that arrives during a write, or within the pause after it, causes one more write, and a write that
// fails is repeated. So the last hint always has an effect.
//
// The annotation of a suspended PolicyRepository is written too: the newest commit is fetched when it is resumed.
type requests struct {
	client client.Client
	queue  workqueue.TypedRateLimitingInterface[string]

	mu sync.Mutex
	// unwritten has the names in the queue, including those that wait.
	unwritten map[string]bool
}

func newRequests(c client.Client) *requests {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 30*time.Second)
	return &requests{client: c, queue: workqueue.NewTypedRateLimitingQueue(limiter), unwritten: map[string]bool{}}
}

// add asks for a synchronization of a PolicyRepository and returns at once.
func (r *requests) add(name string) {
	r.mu.Lock()
	r.unwritten[name] = true
	r.mu.Unlock()
	r.queue.Add(name)
}

// begin reports whether there was a hint since the last call for this name.
func (r *requests) begin(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer delete(r.unwritten, name)
	return r.unwritten[name]
}

// run writes until ctx is done, and then what is left.
func (r *requests) run(ctx context.Context) {
	defer context.AfterFunc(ctx, r.queue.ShutDown)()
	written := map[string]time.Time{}
	for {
		name, ended := r.queue.Get()
		if ended {
			break
		}
		if wait := pause - time.Since(written[name]); wait > 0 {
			r.queue.AddAfter(name, wait)
		} else if r.begin(name) {
			r.writeOrRepeat(ctx, name)
			written[name] = time.Now()
		}
		r.queue.Done(name)
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), lastWrites)
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.unwritten {
		if err := r.write(ctx, name); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "can't request a synchronization", "policyrepository", name)
		}
	}
}

func (r *requests) writeOrRepeat(ctx context.Context, name string) {
	if err := r.write(ctx, name); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "can't request a synchronization; trying again", "policyrepository", name)
		r.mu.Lock()
		r.unwritten[name] = true
		r.mu.Unlock()
		r.queue.AddRateLimited(name)
		return
	}
	r.queue.Forget(name)
}

// write sets the annotation, as kubectl nstpl sync now does.
func (r *requests) write(ctx context.Context, name string) error {
	repository := &v1alpha1.PolicyRepository{}
	repository.Name = name
	body := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.SyncRequestedAnnotation,
		time.Now().UTC().Format(time.RFC3339Nano))
	err := r.client.Patch(ctx, repository, client.RawPatch(types.MergePatchType, []byte(body)))
	return client.IgnoreNotFound(err)
}
