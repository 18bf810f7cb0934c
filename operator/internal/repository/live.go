package repository

import (
	"context"
	"fmt"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/freshness"
)

// fieldManager is the name under which the objects of trees are applied.
const fieldManager = "nstpl-sync"

// resources are the kinds that trees declare, with their resources.
var resources = map[schema.GroupVersionKind]string{
	{Version: "v1", Kind: "Namespace"}:                       "namespaces",
	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"):        "clusterroles",
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"): "clusterrolebindings",
	v1alpha1.GroupVersion.WithKind("NamespaceTemplate"):      "namespacetemplates",
	v1alpha1.GroupVersion.WithKind("PolicySpace"):            "policyspaces",
}

// newObject returns an empty object of a kind, to watch or list.
func newObject(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// Cluster reads and writes the objects of trees.
type Cluster struct {
	// Cached reads from the cache, which Informers fill. Informers are nil if Cached reads from the API server.
	Cached    client.Reader
	Informers cache.Informers
	// Config is for requests to the API server with the permissions of nstpl-sync.
	Config *rest.Config

	mu sync.Mutex
	// clients are the clients for the objects, by the ServiceAccount that they impersonate.
	clients map[string]dynamic.Interface
	// written has the objects that were written, by kind. Each kind has a cache of its own.
	written map[schema.GroupKind]*writeStore
}

type writeStore = freshness.Store[inventory.ID, *unstructured.Unstructured]

func (c *Cluster) writtenOf(kind schema.GroupKind) *writeStore {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written == nil {
		c.written = map[schema.GroupKind]*writeStore{}
	}
	if c.written[kind] == nil {
		c.written[kind] = &writeStore{}
	}
	return c.written[kind]
}

// upTo returns the resourceVersion up to which the cache of a kind is complete, or "" if that is unknown.
func (c *Cluster) upTo(ctx context.Context, kind schema.GroupVersionKind) (string, error) {
	if c.Informers == nil {
		return "", nil
	}
	informer, err := c.Informers.GetInformer(ctx, newObject(kind))
	if err != nil {
		return "", fmt.Errorf("find the cache of the kind %s: %w", kind.Kind, err)
	}
	if shared, ok := informer.(toolscache.SharedInformer); ok {
		return shared.GetStore().LastStoreSyncResourceVersion(), nil
	}
	return "", nil
}

// live returns all objects of the kinds that trees declare. They must not be changed.
func (c *Cluster) live(ctx context.Context) (map[inventory.ID]*unstructured.Unstructured, error) {
	all := map[inventory.ID]*unstructured.Unstructured{}
	for kind := range resources {
		// No event tells of an object that was created and deleted while the watch was interrupted. The version is read
		// before the objects, which are then at least as new.
		version, err := c.upTo(ctx, kind)
		if err != nil {
			return nil, err
		}
		written := c.writtenOf(kind.GroupKind())
		written.UpTo(version)
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.Cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list the objects of the kind %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			id := inventory.ID{GroupKind: kind.GroupKind(), Name: object.GetName()}
			all[id] = written.Latest(id, object)
		}
		for id, object := range written.Unobserved() {
			if all[id] == nil {
				all[id] = object // the cache does not have it yet
			}
		}
	}
	return all, nil
}

func (c *Cluster) observed(kind schema.GroupVersionKind, object client.Object) {
	id := inventory.ID{GroupKind: kind.GroupKind(), Name: object.GetName()}
	c.writtenOf(id.GroupKind).Observed(id, object.GetResourceVersion())
}

func (c *Cluster) wrote(object *unstructured.Unstructured) {
	object.SetManagedFields(nil)
	id := render.IDOf(object)
	c.writtenOf(id.GroupKind).Written(id, object)
}

// createdBySync returns the UID of an object that nstpl-sync created for one of some trees, as its managedFields say,
// or "", and whether the object exists. Every user can write managedFields, so it is asked only about objects whose
// creation was recorded beforehand, and requires the annotation that admission lets only nstpl-sync set on namespaces.
func (c *Cluster) createdBySync(
	ctx context.Context, id inventory.ID, trees map[string]bool,
) (created types.UID, exists bool, err error) {
	for kind := range resources {
		if kind.GroupKind() != id.GroupKind {
			continue
		}
		to, err := c.as("")
		if err != nil {
			return "", false, err
		}
		objects, err := to.resource(kind)
		if err != nil {
			return "", false, err
		}
		object, err := objects.Get(ctx, id.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", false, nil
		}
		if err != nil {
			return "", false, fmt.Errorf("read %s: %w", id, err)
		}
		for _, entry := range object.GetManagedFields() {
			if entry.Manager == fieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
				trees[object.GetLabels()[v1alpha1.TreeLabel]] &&
				inventory.HashOf(object) != "" && object.GetAnnotations()[v1alpha1.AdoptAnnotation] == "" {
				return object.GetUID(), true, nil
			}
		}
		return "", true, nil
	}
	return "", false, nil
}
