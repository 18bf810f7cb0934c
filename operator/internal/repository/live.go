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
	// Cached reads from the cache, Live from the API server.
	Cached  client.Reader
	Objects dynamic.Interface

	mu sync.Mutex
	// written are the objects that were written and that the cache may not have yet.
	written map[inventory.ID]*unstructured.Unstructured
}

// resource returns the client for a kind.
func (c *Cluster) resource(kind schema.GroupVersionKind) (dynamic.ResourceInterface, error) {
	resource, ok := resources[kind]
	if !ok {
		return nil, fmt.Errorf("trees cannot declare objects of the kind %s", kind.GroupKind())
	}
	return c.Objects.Resource(kind.GroupVersion().WithResource(resource)), nil
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

// noVersion is a resourceVersion that no object has, so that an apply to an existing object is a conflict. Etcd never
// gives its first revision to an object.
const noVersion = "1"

// apply applies an object, which the plan has seen as it is in the cluster. An object that the plan has not seen must
// not exist.
func (c *Cluster) apply(ctx context.Context, change inventory.Apply) (*unstructured.Unstructured, error) {
	objects, err := c.resource(change.Declared.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	body := change.Declared.DeepCopy()
	if change.Live == nil {
		body.SetResourceVersion(noVersion)
	} else {
		body.SetUID(change.Live.GetUID())
	}
	applied, err := objects.Apply(ctx, body.GetName(), body,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return nil, err
	}
	c.wrote(applied)
	return applied, nil
}

// release takes back what was applied to a namespace.
func (c *Cluster) release(ctx context.Context, ns *unstructured.Unstructured) error {
	bare := newObject(ns.GroupVersionKind())
	bare.SetName(ns.GetName())
	_, err := c.apply(ctx, inventory.Apply{Declared: bare, Live: ns})
	return client.IgnoreNotFound(err)
}

// delete deletes an object, unless another one has its name now.
func (c *Cluster) delete(ctx context.Context, object *unstructured.Unstructured) error {
	objects, err := c.resource(object.GroupVersionKind())
	if err != nil {
		return err
	}
	uid := object.GetUID()
	err = objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// createdBySync returns the UID of an object that nstpl-sync created for a tree, as its managedFields say, or "".
// Every user can write managedFields, so it is asked only about objects whose creation was recorded beforehand.
func (c *Cluster) createdBySync(ctx context.Context, id inventory.ID, tree string) (types.UID, error) {
	for kind := range resources {
		if kind.GroupKind() != id.GroupKind {
			continue
		}
		objects, err := c.resource(kind)
		if err != nil {
			return "", err
		}
		object, err := objects.Get(ctx, id.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("read %s: %w", id, err)
		}
		for _, entry := range object.GetManagedFields() {
			if entry.Manager == fieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
				object.GetLabels()[v1alpha1.TreeLabel] == tree &&
				object.GetAnnotations()[v1alpha1.AdoptAnnotation] == "" {
				return object.GetUID(), nil
			}
		}
	}
	return "", nil
}
