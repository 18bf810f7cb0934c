package repository

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inforce"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/patch"
)

// writer writes the objects of trees with the permissions of one account.
type writer struct {
	cluster *Cluster
	objects dynamic.Interface
}

// as returns a writer with the permissions of a ServiceAccount in the operator's namespace or, without a name, with
// those of nstpl-sync.
func (c *Cluster) as(account string) (writer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if objects := c.clients[account]; objects != nil {
		return writer{c, objects}, nil
	}
	config := rest.CopyConfig(c.Config)
	if account != "" {
		config.Impersonate.UserName = fmt.Sprintf("system:serviceaccount:%s:%s", v1alpha1.OperatorNamespace, account)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return writer{}, err
	}
	if c.clients == nil {
		c.clients = map[string]dynamic.Interface{}
	}
	c.clients[account] = objects
	return writer{c, objects}, nil
}

func (w writer) resource(kind schema.GroupVersionKind) (dynamic.ResourceInterface, error) {
	resource, ok := resources[kind]
	if !ok {
		return nil, fmt.Errorf("trees cannot declare objects of the kind %s", kind.GroupKind())
	}
	return w.objects.Resource(kind.GroupVersion().WithResource(resource)), nil
}

// noVersion is a resourceVersion that no object has, so that an apply to an existing object is a conflict. Etcd never
// gives its first revision to an object.
const noVersion = "1"

// apply applies an object, which the plan has seen as it is in the cluster. An object that the plan has not seen must
// not exist.
func (w writer) apply(ctx context.Context, change inventory.Apply) (*unstructured.Unstructured, error) {
	objects, err := w.resource(change.Declared.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if change.Replaced != nil {
		if err := w.delete(ctx, change.Replaced); err != nil {
			return nil, err
		}
	}
	body := change.Declared.DeepCopy()
	if change.Live == nil {
		body.SetResourceVersion(noVersion)
	} else {
		body.SetUID(change.Live.GetUID())
		if inforce.HasAdditions(change.Declared, change.Live) {
			version, err := w.removeAdditions(ctx, objects, change)
			if err != nil {
				return nil, err
			}
			body.SetResourceVersion(version)
		}
		if leftovers := inventory.Leftovers(change.Declared, change.Live); len(leftovers) > 0 {
			if err := replaceMetadata(ctx, objects, change, leftovers, nil); err != nil {
				return nil, err
			}
		}
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	applied, err := objects.Apply(ctx, body.GetName(), body, options)
	if patch.IsTooLarge(err) && change.Live != nil && body.GroupVersionKind() == render.NamespaceKind {
		// Every user who may patch a namespace can fill it with managedFields, which an apply cannot drop.
		if err := replaceMetadata(ctx, objects, change, nil, noManagers); err != nil {
			return nil, err
		}
		applied, err = objects.Apply(ctx, body.GetName(), body, options)
	}
	if err != nil {
		return nil, err
	}
	w.cluster.wrote(applied)
	return applied, nil
}

// removeAdditions sets the spec of an object to what the tree declares, because an apply does not remove what others
// have added. It returns the resourceVersion for which that is so.
func (w writer) removeAdditions(
	ctx context.Context, objects dynamic.ResourceInterface, change inventory.Apply,
) (string, error) {
	current, err := objects.Get(ctx, change.Live.GetName(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	restored := inforce.WithoutAdditions(change.Declared, current)
	operations := patch.Tested{}.Test("/metadata/uid", change.Live.GetUID()).
		Test("/metadata/resourceVersion", current.GetResourceVersion()).
		Set("/spec", restored.Object["spec"]).Set("/metadata/annotations", restored.GetAnnotations())
	body, err := operations.Data(nil)
	if err != nil {
		return "", err
	}
	patched, err := objects.Patch(ctx, current.GetName(), operations.Type(), body,
		metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return "", err
	}
	return patched.GetResourceVersion(), nil
}

// noManagers has the API server drop all managedFields. nstpl decides nothing by those of a namespace whose UID it has
// recorded, and it has recorded that of each namespace before it writes this.
var noManagers = []metav1.ManagedFieldsEntry{{}}

// replaceMetadata removes the labels and annotations of a namespace that the tree applied and no longer declares, in
// one step with what it sets instead. An apply would leave those that another client has applied, too. It depends on no
// resourceVersion, which users of the namespace could change again and again. In the same step, it sets managedFields
// if they are not nil.
func replaceMetadata(
	ctx context.Context, objects dynamic.ResourceInterface, change inventory.Apply, leftovers map[string][]string,
	managers []metav1.ManagedFieldsEntry,
) error {
	metadata := map[string]any{"uid": change.Live.GetUID()}
	if managers != nil {
		metadata["managedFields"] = managers
	}
	for field, declared := range map[string]map[string]string{
		render.Labels: change.Declared.GetLabels(), render.Annotations: change.Declared.GetAnnotations(),
	} {
		values := map[string]any{}
		for key, value := range declared {
			values[key] = value
		}
		for _, key := range leftovers[field] {
			values[key] = nil
		}
		metadata[field] = values
	}
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = objects.Patch(ctx, change.Live.GetName(), types.MergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager})
	return err
}

// get returns an object as it is now, with its managedFields.
func (w writer) get(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	objects, err := w.resource(object.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return objects.Get(ctx, object.GetName(), metav1.GetOptions{})
}

// release takes back what was applied to a namespace.
func (w writer) release(ctx context.Context, ns *unstructured.Unstructured) error {
	bare := newObject(ns.GroupVersionKind())
	bare.SetName(ns.GetName())
	_, err := w.apply(ctx, inventory.Apply{Declared: bare, Live: ns})
	return client.IgnoreNotFound(err)
}

// delete deletes an object, unless another one has its name now.
func (w writer) delete(ctx context.Context, object *unstructured.Unstructured) error {
	objects, err := w.resource(object.GroupVersionKind())
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
