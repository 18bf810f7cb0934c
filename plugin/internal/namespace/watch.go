package namespace

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/metadatainformer"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// event is a change that a waiter waits for. Exactly one field is set.
type event struct {
	// namespace is the namespace after it was created or updated.
	namespace *corev1.Namespace
	// populated is an object that the operator applied.
	populated *populate.ObjectID
	// unwatchable is a kind that the user may not watch.
	unwatchable *survey.Unreadable
	// forbidden is the error if the user may not read the namespace. A template may grant this permission later.
	forbidden error
	// err ends the waiting, since the namespace was deleted or cannot be read.
	err error
}

// pollInterval is the interval between two reads of a namespace that the user may not watch.
const pollInterval = 500 * time.Millisecond

// watch returns the events of a namespace and of the missing objects in it, until ctx is done.
func (w *waiter) watch(ctx context.Context, name string) <-chan event {
	all := make(chan event)
	send := cluster.Sender(ctx, all)
	w.watchNamespace(ctx, name, send)
	kinds := map[schema.GroupVersionKind]bool{}
	for _, object := range w.missing {
		if kind := object.GroupVersionKind(); !kinds[kind] {
			kinds[kind] = true
			w.watchObjects(ctx, kind, name, send)
		}
	}
	return all
}

// watchObjects watches the objects of a kind. It does nothing if the cluster does not serve the kind.
func (w *waiter) watchObjects(
	ctx context.Context, kind schema.GroupVersionKind, namespace string, send func(event),
) {
	mapping, err := w.cluster.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
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
			send(event{populated: &populate.ObjectID{GroupKind: kind.GroupKind(), Name: object.Name}})
		}
	}
	cluster.Follow(ctx, informer, changed, nil, func(err error) {
		unreadable := survey.NewUnreadable(kind.GroupKind(), namespace, err)
		send(event{unwatchable: &unreadable})
	})
}

// watchNamespace watches a namespace. It polls the namespace if the user may not watch it.
func (w *waiter) watchNamespace(ctx context.Context, name string, send func(event)) {
	changed := func(item any) {
		if ns, ok := item.(*corev1.Namespace); ok {
			send(event{namespace: ns})
		}
	}
	deleted := func(any) { send(event{err: fmt.Errorf("namespace %s was deleted", name)}) }
	cluster.Follow(ctx, w.cluster.NamespaceInformer(cluster.OnlyNamed(name)), changed, deleted,
		func(error) { w.poll(ctx, name, send) })
}

// poll reads the namespace at intervals. A user who may only create namespaces can often read the new namespace once it
// is populated, since a template grants the permission.
func (w *waiter) poll(ctx context.Context, name string, send func(event)) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		ns, err := w.cluster.Namespaces.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err):
			send(event{forbidden: err})
		case err != nil:
			send(event{err: err})
			return
		default:
			send(event{namespace: ns})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
