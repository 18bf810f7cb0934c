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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
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
	// Cached reads from the cache.
	Cached client.Reader
	// Config is for requests to the API server with the permissions of nstpl-sync.
	Config *rest.Config

	mu sync.Mutex
	// clients are the clients for the objects, by the ServiceAccount that they impersonate.
	clients map[string]dynamic.Interface
	// written are the objects that were written and that the cache may not have yet.
	written map[inventory.ID]*unstructured.Unstructured
}

// live returns all objects of the kinds that trees declare. They must not be changed.
func (c *Cluster) live(ctx context.Context) (map[inventory.ID]*unstructured.Unstructured, error) {
	all := map[inventory.ID]*unstructured.Unstructured{}
	for kind := range resources {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.Cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list the objects of the kind %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			all[inventory.ID{GroupKind: kind.GroupKind(), Name: object.GetName()}] = object
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, written := range c.written {
		if cached := all[id]; cached == nil || isNewer(written, cached) {
			all[id] = written
		} else {
			delete(c.written, id)
		}
	}
	return all, nil
}

// isNewer reports whether a is a later version than b, or cannot be compared with it.
func isNewer(a, b *unstructured.Unstructured) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err != nil || order > 0
}

// Deleted tells the cluster that an object was deleted.
func (c *Cluster) Deleted(id inventory.ID, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if written := c.written[id]; written != nil && written.GetUID() == uid {
		delete(c.written, id)
	}
}

func (c *Cluster) wrote(object *unstructured.Unstructured) {
	object.SetManagedFields(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written == nil {
		c.written = map[inventory.ID]*unstructured.Unstructured{}
	}
	c.written[inventory.IDOf(object)] = object
}

// createdBySync returns the UID of an object that nstpl-sync created for one of some trees, as its managedFields say,
// or "", and whether the object exists. Every user can write managedFields, so it is asked only about objects whose
// creation was recorded beforehand.
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
				object.GetAnnotations()[v1alpha1.AdoptAnnotation] == "" {
				return object.GetUID(), true, nil
			}
		}
		return "", true, nil
	}
	return "", false, nil
}
