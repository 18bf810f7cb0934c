package leadership

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/freshness"
)

// The caches of a standby may be stale when it becomes the leader. They are checked after firstPoll, and then at
// growing intervals up to lastPoll.
const (
	firstPoll = 10 * time.Millisecond
	lastPoll  = 500 * time.Millisecond
	// listAgain is how long an object may be missing in a cache before the API server is asked whether it was deleted.
	listAgain = time.Second
	// complainAfter is the interval between log entries about stale caches.
	complainAfter = 5 * time.Second
	// pageSize is the most objects that are listed with one request.
	pageSize = 500
)

// Caches makes a new leader wait until its caches are up to date. Otherwise it could undo what the previous leader did
// because of objects that this replica has not seen yet. It is safe for concurrent use.
type Caches struct {
	cached client.Client
	live   client.Reader
	lists  []client.ObjectList

	mu    sync.Mutex
	fresh bool
}

// NewCaches returns Caches for the kinds of some empty lists. cached reads from the caches, and live from the API
// server.
func NewCaches(cached client.Client, live client.Reader, lists ...client.ObjectList) *Caches {
	return &Caches{cached: cached, live: live, lists: lists}
}

// Before returns a reconciler that waits, and then runs what prepares another one, before it calls that one for the
// first time. A preparation that fails is run again; one that has succeeded returns nil at once.
func (c *Caches) Before(
	next reconcile.Reconciler, prepare ...func(context.Context) error,
) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		for _, step := range append([]func(context.Context) error{c.Wait}, prepare...) {
			if err := step(ctx); err != nil {
				return reconcile.Result{}, err
			}
		}
		return next.Reconcile(ctx, request)
	})
}

// Wait waits until the caches have everything that was stored at the first call. It returns an error when ctx is done.
// It lists each kind once, and does nothing after it has returned nil.
func (c *Caches) Wait(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fresh {
		return nil
	}
	for _, list := range c.lists {
		if err := c.await(ctx, list); err != nil {
			return err
		}
	}
	c.fresh = true
	return nil
}

func (c *Caches) await(ctx context.Context, list client.ObjectList) error {
	against := comparison{Caches: c, list: list, again: listAgain}
	complain := time.Now().Add(complainAfter)
	for interval := firstPoll; ; interval = min(2*interval, lastPoll) {
		missing, err := against.missing(ctx)
		if err == nil && len(missing) == 0 {
			return nil
		}
		if time.Now().After(complain) {
			complain = time.Now().Add(complainAfter)
			complainAbout(ctx, list, missing, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("caches are older than the leadership: %w", ctx.Err())
		case <-time.After(interval):
		}
	}
}

// comparison compares a cache with what was stored at the first check.
type comparison struct {
	*Caches
	list   client.ObjectList
	stored Stored
	// listed is when the API server was asked last, and again is the interval before it is asked again.
	listed time.Time
	again  time.Duration
}

func (c *comparison) missing(ctx context.Context) ([]string, error) {
	if isFirst := c.listed.IsZero(); isFirst || time.Since(c.listed) > c.again {
		now, err := List(ctx, c.cached, c.live, c.list)
		if err != nil {
			return nil, err
		}
		c.listed = time.Now()
		if isFirst {
			c.stored = now
		} else {
			c.stored.forgetDeleted(now)
			c.again *= 2
		}
	}
	return c.stored.Missing(ctx, c.cached, c.list)
}

func complainAbout(ctx context.Context, list client.ObjectList, missing []string, err error) {
	log := ctrl.LoggerFrom(ctx).WithValues("list", fmt.Sprintf("%T", list))
	if err != nil {
		log.Error(err, "waiting for the list of objects that existed when this replica became the leader")
		return
	}
	log.Info("waiting until the cache has the objects that existed when this replica became the leader",
		"missing", len(missing), "first", strings.Join(missing[:min(len(missing), 3)], ", "))
}

// Stored is the set of objects of a kind that the API server had at one time.
type Stored struct {
	// versions are the resourceVersions of the objects.
	versions map[client.ObjectKey]string
	// asOf is the resourceVersion of the list.
	asOf string
}

// List asks the API server for the objects of the kind of a list. It does not change the list.
func List(
	ctx context.Context, cached client.Client, live client.Reader, list client.ObjectList, options ...client.ListOption,
) (Stored, error) {
	kind, err := cached.GroupVersionKindFor(list)
	if err != nil {
		return Stored{}, err
	}
	found, err := ListMetadata(ctx, live, kind, options...)
	if err != nil {
		return Stored{}, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	stored := Stored{versions: map[client.ObjectKey]string{}, asOf: found.ResourceVersion}
	for i := range found.Items {
		stored.versions[client.ObjectKeyFromObject(&found.Items[i])] = found.Items[i].ResourceVersion
	}
	return stored, nil
}

// ListMetadata lists the metadata of the objects of a kind. It asks for pages, so that the API server does not have to
// prepare many objects at once. All pages have the resourceVersion of the first page, which is that of the list.
func ListMetadata(
	ctx context.Context, live client.Reader, kind schema.GroupVersionKind, options ...client.ListOption,
) (*metav1.PartialObjectMetadataList, error) {
	all := &metav1.PartialObjectMetadataList{}
	for {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(kind)
		of := []client.ListOption{client.Limit(pageSize), client.Continue(all.Continue)}
		if err := live.List(ctx, page, append(of, options...)...); err != nil {
			return nil, err
		}
		page.Items = append(all.Items, page.Items...)
		if all = page; all.Continue == "" {
			return all, nil
		}
	}
}

// Missing returns the names of objects that the cache has in an older version than stored, or not at all, and of those
// that it still has although they had been deleted.
func (s Stored) Missing(ctx context.Context, cached client.Reader, list client.ObjectList) ([]string, error) {
	found := list.DeepCopyObject().(client.ObjectList)
	if err := cached.List(ctx, found, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	known := map[client.ObjectKey]string{}
	err := apimeta.EachListItem(found, func(item runtime.Object) error {
		object, err := apimeta.Accessor(item)
		if err == nil {
			known[client.ObjectKey{
				Namespace: object.GetNamespace(), Name: object.GetName(),
			}] = object.GetResourceVersion()
		}
		return err
	})
	return s.missing(known), err
}

// missing is Missing for the resourceVersions in a cache.
func (s Stored) missing(known map[client.ObjectKey]string) []string {
	var missing []string
	for key, version := range s.versions {
		if !freshness.AtLeast(known[key], version) {
			missing = append(missing, key.String())
		}
	}
	for key, version := range known {
		if _, stored := s.versions[key]; !stored && freshness.AtLeast(s.asOf, version) {
			missing = append(missing, key.String())
		}
	}
	slices.Sort(missing)
	return missing
}

// forgetDeleted removes objects that no longer exist, which the cache may never have had.
func (s Stored) forgetDeleted(now Stored) {
	maps.DeleteFunc(s.versions, func(key client.ObjectKey, _ string) bool {
		_, exists := now.versions[key]
		return !exists
	})
}
