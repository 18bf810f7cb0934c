package cluster

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	path, dryRun := pathOf(mapping.Resource, object.GetNamespace()), []string{metav1.DryRunAll}
	request := c.rest.Post().AbsPath(path...).SetHeader("Content-Type", runtime.ContentTypeJSON).
		VersionedParams(&metav1.CreateOptions{DryRun: dryRun, FieldManager: manager}, metav1.ParameterCodec)
	if c.exists(ctx, mapping, object) {
		force := true
		request = c.rest.Patch(types.ApplyPatchType).AbsPath(append(path, object.GetName())...).
			VersionedParams(&metav1.PatchOptions{DryRun: dryRun, FieldManager: manager, Force: &force},
				metav1.ParameterCodec)
	}
	data, err := body(request.Body(content).MaxRetries(0).Do(ctx))
	if err != nil {
		return nil, err
	}
	stored := &unstructured.Unstructured{}
	return stored, stored.UnmarshalJSON(data)
}

// IsDenial reports whether the error of a dry run says that the API server would deny the request. After other errors,
// that is unknown: the API server did not decide, or not about the request of the caller. A webhook that did not answer
// is an error of the API server.
func IsDenial(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && !apierrors.IsUnauthorized(err) &&
		!apierrors.IsTooManyRequests(err) && !strings.Contains(err.Error(), " cannot impersonate resource ") &&
		!strings.Contains(err.Error(), "does not support dry run")
}

// exists reports whether an object exists and the caller may read it.
func (c *Cluster) exists(ctx context.Context, mapping *meta.RESTMapping, object *unstructured.Unstructured) bool {
	if object.GetName() == "" {
		return false
	}
	_, err := c.Metadata.Resource(mapping.Resource).Namespace(object.GetNamespace()).
		Get(ctx, object.GetName(), metav1.GetOptions{})
	return err == nil
}
