package namespace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// event is something that happened while a waiter waits. One field is set.
type event struct {
	// namespace is the namespace, created or changed.
	namespace *corev1.Namespace
	// populated is an object that the operator applied.
	populated *populate.ObjectID
	// unwatchable is a kind that the user may not watch.
	unwatchable *survey.Unreadable
	// forbidden is why the user may not read the namespace now. A template may grant that later.
	forbidden error
	// err ends the waiting: the namespace was deleted, or reading it failed.
	err error
}

type events chan event

// send returns without sending once ctx is done, since nobody receives then.
func (c events) send(ctx context.Context, e event) {
	select {
	case c <- e:
	case <-ctx.Done():
	}
}

// pollInterval is how often a user who may not watch a namespace reads it.
const pollInterval = 500 * time.Millisecond

// watch returns the events of a namespace and of the missing objects in it, until ctx is done.
func (w *waiter) watch(ctx context.Context, name string) <-chan event {
	all := make(events)
	w.watchNamespace(ctx, name, all)
	kinds := map[schema.GroupVersionKind]bool{}
	for _, object := range w.missing {
		if kind := object.GroupVersionKind(); !kinds[kind] {
			kinds[kind] = true
			w.watchObjects(ctx, kind, name, all)
		}
	}
	return all
}

// watchObjects watches the objects of a kind. A kind that the cluster does not know has no events.
func (w *waiter) watchObjects(ctx context.Context, kind schema.GroupVersionKind, namespace string, all events) {
	mapping, err := w.cluster.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return
	}
	informer := metadatainformer.NewFilteredMetadataInformer(w.cluster.Metadata, mapping.Resource, namespace, 0, nil,
		func(options *metav1.ListOptions) { options.LabelSelector = v1alpha1.TemplateNameLabel }).Informer()
	changed := func(item any) {
		object, ok := item.(*metav1.PartialObjectMetadata)
		if ok && slices.ContainsFunc(object.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return populate.IsOwnEntry(&e)
		}) {
			all.send(ctx, event{populated: &populate.ObjectID{GroupKind: kind.GroupKind(), Name: object.Name}})
		}
	}
	startInformer(ctx, informer, changed, nil, func(err error) {
		refused := survey.Refused(kind.GroupKind(), namespace, err)
		all.send(ctx, event{unwatchable: &refused})
	})
}

// watchNamespace watches a namespace. If the user may not, it polls.
func (w *waiter) watchNamespace(ctx context.Context, name string, all events) {
	only := func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			only(&options)
			return w.cluster.Namespaces.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			only(&options)
			return w.cluster.Namespaces.Watch(ctx, options)
		},
	}, &corev1.Namespace{}, 0, nil)
	changed := func(item any) {
		if ns, ok := item.(*corev1.Namespace); ok {
			all.send(ctx, event{namespace: ns})
		}
	}
	deleted := func(any) { all.send(ctx, event{err: fmt.Errorf("namespace %s was deleted", name)}) }
	startInformer(ctx, informer, changed, deleted, func(error) { w.poll(ctx, name, all) })
}

// startInformer starts an informer. It calls refused once, in a goroutine of its own, if the user may not watch. The
// informer retries after any other error.
func startInformer(
	ctx context.Context, informer cache.SharedIndexInformer, changed, deleted func(any), refused func(error),
) {
	ctx, stop := context.WithCancel(ctx)
	var once sync.Once
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, item any) {
		changed(item)
	}, DeleteFunc: deleted}
	// Both return an error only for an informer that was started before.
	_, _ = informer.AddEventHandler(handlers)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			once.Do(func() {
				stop()
				go refused(err)
			})
		}
	})
	go func() {
		defer stop()
		informer.RunWithContext(ctx)
	}()
}

// poll reads the namespace again and again. A user who may only create namespaces can often read this one once it is
// populated.
func (w *waiter) poll(ctx context.Context, name string, all events) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		ns, err := w.cluster.Namespaces.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			all.send(ctx, event{forbidden: err})
		case err != nil:
			all.send(ctx, event{err: err})
			return
		default:
			all.send(ctx, event{namespace: ns})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
