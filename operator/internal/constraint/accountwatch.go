package constraint

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// ServiceAccount returns an empty ServiceAccount of the type by which the cache of a manager keeps them: metadata only.
func ServiceAccount() *metav1.PartialObjectMetadata {
	account := &metav1.PartialObjectMetadata{}
	account.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	return account
}

// serviceAccounts returns an empty list of ServiceAccounts as metadata.
func serviceAccounts() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
	return list
}

// IdentityOnly is a cache.TransformFunc that keeps of an object its name, UID, resourceVersion, age and user ID. A
// cluster may have tens of thousands of ServiceAccounts.
func IdentityOnly(object any) (any, error) {
	partial, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	id, hasID := partial.Annotations[v1alpha1.AccountUIDAnnotation]
	partial.ObjectMeta = metav1.ObjectMeta{
		Namespace: partial.Namespace, Name: partial.Name, UID: partial.UID,
		ResourceVersion: partial.ResourceVersion, CreationTimestamp: partial.CreationTimestamp,
	}
	if hasID {
		partial.Annotations = map[string]string{v1alpha1.AccountUIDAnnotation: id}
	}
	return partial, nil
}

// accountWatch is the watch of ServiceAccounts, which controllers share. It exists while one of them needs it.
type accountWatch struct {
	cache cache.Cache

	mu sync.Mutex
	// registrations are those of the handlers that are called.
	registrations map[toolscache.ResourceEventHandler]toolscache.ResourceEventHandlerRegistration
}

func newAccountWatch(of cache.Cache) *accountWatch {
	return &accountWatch{
		cache:         of,
		registrations: map[toolscache.ResourceEventHandler]toolscache.ResourceEventHandlerRegistration{},
	}
}

// need starts or ends the calls of a handler, which is a pointer. A handler whose calls start is called for every
// ServiceAccount that exists.
func (w *accountWatch) need(ctx context.Context, handler toolscache.ResourceEventHandler, needed bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	registration, watches := w.registrations[handler]
	if watches == needed {
		return nil
	}
	informer, err := w.cache.GetInformer(ctx, ServiceAccount())
	if err != nil {
		return err
	}
	if needed {
		if registration, err = informer.AddEventHandler(handler); err == nil {
			w.registrations[handler] = registration
		}
		return err
	}
	if err := informer.RemoveEventHandler(registration); err != nil {
		return err
	}
	delete(w.registrations, handler)
	if len(w.registrations) > 0 {
		return nil
	}
	return w.cache.RemoveInformer(ctx, ServiceAccount())
}
