package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Try sends a dry run that creates an object, or applies it with a field manager if it exists. It returns what the API
// server would store. Unlike other requests, the dry run is not repeated if the API server answers that it may be
// repeated later: the answer is the error.
func (c *Cluster) Try(
	ctx context.Context, mapping *meta.RESTMapping, object *unstructured.Unstructured, manager string,
) (*unstructured.Unstructured, error) {
	content, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	path := pathOf(mapping.Resource, object.GetNamespace())
	dryRun := []string{metav1.DryRunAll}
	create := &metav1.CreateOptions{DryRun: dryRun, FieldManager: manager}
	stored := &unstructured.Unstructured{}
	data, err := body(c.rest.Post().AbsPath(path...).VersionedParams(create, metav1.ParameterCodec).
		SetHeader("Content-Type", "application/json").Body(content).MaxRetries(0).Do(ctx))
	if apierrors.IsAlreadyExists(err) && object.GetName() != "" {
		force := true
		apply := &metav1.PatchOptions{DryRun: dryRun, FieldManager: manager, Force: &force}
		data, err = body(c.rest.Patch(types.ApplyPatchType).AbsPath(append(path, object.GetName())...).
			VersionedParams(apply, metav1.ParameterCodec).Body(content).MaxRetries(0).Do(ctx))
	}
	if err != nil {
		return nil, err
	}
	return stored, stored.UnmarshalJSON(data)
}
