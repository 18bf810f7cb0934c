package cluster

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

// object returns an object of one of the cluster-scoped kinds of nstpl, or a NotInstalledError.
func (c *Cluster) object(
	ctx context.Context, resource schema.GroupVersionResource, name string,
) (*unstructured.Unstructured, error) {
	object, err := c.Dynamic.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		err = c.installed(ctx, err)
	}
	return object, err
}

// Edit changes an object of one of the cluster-scoped kinds of nstpl with a merge patch, and returns the changed
// object.
//
// Patch returns the fields to change in an object, without its metadata.uid and metadata.resourceVersion. The API
// server applies the fields only to the state of the object that patch got. If the object changes meanwhile, for
// example because its status is written, Edit reads it again and calls patch again. An error of patch ends Edit.
func (c *Cluster) Edit(
	ctx context.Context, resource schema.GroupVersionResource, name string, options metav1.PatchOptions,
	patch func(object *unstructured.Unstructured) (map[string]any, error),
) (*unstructured.Unstructured, error) {
	var edited *unstructured.Unstructured
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object, err := c.object(ctx, resource, name)
		if err != nil {
			return err
		}
		fields, err := patch(object)
		if err != nil {
			return err
		}
		data, err := pinned(fields, object)
		if err != nil {
			return err
		}
		edited, err = c.Dynamic.Resource(resource).Patch(ctx, name, types.MergePatchType, data, options)
		return err
	})
	return edited, err
}

// pinned returns a merge patch that the API server applies only to this state of the object.
func pinned(fields map[string]any, object *unstructured.Unstructured) ([]byte, error) {
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = object.GetUID(), object.GetResourceVersion()
	return json.Marshal(fields)
}
