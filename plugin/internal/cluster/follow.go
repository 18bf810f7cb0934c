package cluster

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// NamespaceInformer returns an informer for the Namespaces that the field and label selectors of only select.
func (c *Cluster) NamespaceInformer(only metav1.ListOptions) cache.SharedIndexInformer {
	return informerOf(c.Namespaces, &corev1.Namespace{}, only)
}

// Informer returns an informer for the objects of a cluster-scoped resource that the field and label selectors of only
// select. Its objects are unstructured.
func (c *Cluster) Informer(resource schema.GroupVersionResource, only metav1.ListOptions) cache.SharedIndexInformer {
	return informerOf(c.Dynamic.Resource(resource), &unstructured.Unstructured{}, only)
}

// listWatcher lists and watches the objects of a resource. L is the type of its lists.
type listWatcher[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error)
}

func informerOf[L runtime.Object](
	objects listWatcher[L], example runtime.Object, only metav1.ListOptions,
) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, restrict(options, only))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			return objects.Watch(ctx, restrict(options, only))
		},
	}, example, 0, nil)
}

func restrict(options, only metav1.ListOptions) metav1.ListOptions {
	options.FieldSelector, options.LabelSelector = only.FieldSelector, only.LabelSelector
	return options
}

// Follow starts an informer and calls changed and deleted with its objects until ctx ends. Deleted may be nil. If the
// user may not list and watch, or is not known to the API server even after the credentials were read again, Follow
// stops the informer and calls denied once, in a separate goroutine. The informer retries after any other error.
func Follow(
	ctx context.Context, informer cache.SharedIndexInformer, changed, deleted func(any), denied func(error),
) {
	ctx, stop := context.WithCancel(ctx)
	var once sync.Once
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, item any) {
		changed(item)
	}, DeleteFunc: deleted}
	// Both calls return an error only if the informer was started before.
	_, _ = informer.AddEventHandler(handlers)
	var refusedAt *string // the version that the informer had when the API server did not know the user
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		// The reflector wraps the error of the API server with the name of a Go type.
		answer, ok := errors.AsType[*apierrors.StatusError](err)
		isEnd := ok && apierrors.IsForbidden(answer)
		if ok && apierrors.IsUnauthorized(answer) {
			version := informer.LastSyncResourceVersion()
			isEnd = refusedAt != nil && *refusedAt == version
			refusedAt = &version
		}
		if isEnd {
			once.Do(func() {
				stop()
				go denied(answer)
			})
		}
	})
	go func() {
		defer stop()
		informer.RunWithContext(ctx)
	}()
}

// FollowObjects follows the objects of a cluster-scoped resource of nstpl that the selectors of only select, as Follow
// does. It calls failed if the user may not watch them, or for an object that cannot be decoded.
func FollowObjects[T any](
	ctx context.Context, c *Cluster, resource schema.GroupVersionResource, only metav1.ListOptions,
	changed func(*T), deleted func(name string), failed func(error),
) {
	Follow(ctx, c.Informer(resource, only), func(item any) {
		object, ok := item.(*unstructured.Unstructured)
		if !ok {
			return
		}
		decoded, err := Decode[T](object)
		if err != nil {
			failed(err)
			return
		}
		changed(decoded)
	}, func(item any) { deleted(NameOf(item)) }, failed)
}

// NameOf returns the name of a deleted, cluster-scoped object.
func NameOf(item any) string {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(item)
	if err != nil {
		return ""
	}
	return name
}

// OnlyNamed selects the object with a name.
func OnlyNamed(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

// Sender returns a function that sends to a channel. It gives up when ctx ends, since nothing receives any more.
func Sender[T any](ctx context.Context, to chan<- T) func(T) {
	return func(next T) {
		select {
		case to <- next:
		case <-ctx.Done():
		}
	}
}
