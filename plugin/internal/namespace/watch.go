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

// news is one thing that happened: the field that is set says what.
type news struct {
	namespace *corev1.Namespace
	// populated is an object that is there, as the operator applied it.
	populated *populate.ObjectID
	// unwatched is a kind that the caller may not watch.
	unwatched *survey.Unreadable
	// unread is why the caller may not read the namespace, so far: a template may grant it.
	unread error
	// err ends the waiting: the namespace is gone.
	err error
}

// pollEvery is how often those who may not watch a namespace ask for it.
const pollEvery = 500 * time.Millisecond

// watch tells what happens to a namespace and to the missing objects in it until ctx is done.
func (w *waiting) watch(ctx context.Context, name string) <-chan news {
	all := make(chan news)
	tell := func(n news) {
		select {
		case all <- n:
		case <-ctx.Done():
		}
	}
	w.watchNamespace(ctx, name, tell)
	kinds := map[schema.GroupVersionKind]bool{}
	for _, object := range w.missing {
		if kind := object.GroupVersionKind(); !kinds[kind] {
			kinds[kind] = true
			w.watchObjects(ctx, kind, name, tell)
		}
	}
	return all
}

// watchObjects watches the objects of a kind. Those of a kind that the cluster doesn't know never arrive.
func (w *waiting) watchObjects(ctx context.Context, kind schema.GroupVersionKind, namespace string, tell func(news)) {
	mapping, err := w.cluster.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return
	}
	informer := metadatainformer.NewFilteredMetadataInformer(w.cluster.Metadata, mapping.Resource, namespace, 0, nil,
		func(options *metav1.ListOptions) { options.LabelSelector = v1alpha1.TemplateNameLabel }).Informer()
	seen := func(item any) {
		object, ok := item.(*metav1.PartialObjectMetadata)
		if ok && slices.ContainsFunc(object.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return populate.IsOwnEntry(&e) }) {
			tell(news{populated: &populate.ObjectID{GroupKind: kind.GroupKind(), Name: object.Name}})
		}
	}
	runInformer(ctx, informer, seen, nil, func(err error) {
		refused := survey.Refused(kind.GroupKind(), namespace, err)
		tell(news{unwatched: &refused})
	})
}

// watchNamespace watches a namespace. Who may not, but may read it, asks now and then.
func (w *waiting) watchNamespace(ctx context.Context, name string, tell func(news)) {
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
	seen := func(item any) {
		if ns, ok := item.(*corev1.Namespace); ok {
			tell(news{namespace: ns})
		}
	}
	gone := func(any) { tell(news{err: fmt.Errorf("namespace %s was deleted", name)}) }
	runInformer(ctx, informer, seen, gone, func(error) { w.poll(ctx, name, tell) })
}

// runInformer starts an informer. refused is called once, if the caller may not watch.
func runInformer(ctx context.Context, informer cache.SharedIndexInformer, seen, gone func(any), refused func(error)) {
	ctx, stop := context.WithCancel(ctx)
	var once sync.Once
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, item any) { seen(item) }, DeleteFunc: gone}
	// Both fail only for an informer that runs already. What is not a refusal is tried again by itself.
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

// poll asks for the namespace now and then. Who creates it and may do nothing else can often read it once it is populated.
func (w *waiting) poll(ctx context.Context, name string, tell func(news)) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ns, err := w.cluster.Namespaces.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			tell(news{unread: err})
		case err != nil:
			tell(news{err: err})
			return
		default:
			tell(news{namespace: ns})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
