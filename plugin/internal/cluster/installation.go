package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Server is what the API server says about itself.
type Server struct {
	// Version is the version of Kubernetes, such as v1.36.3.
	Version string
	// Now is the time on the clock of the API server, to the second.
	Now time.Time
}

// Server returns the version and the time of the API server.
func (c *Cluster) Server(ctx context.Context) (Server, error) {
	request := c.rest.Get().AbsPath("version")
	// The client of the API has no access to the headers of a response.
	plain, err := http.NewRequestWithContext(ctx, http.MethodGet, request.URL().String(), http.NoBody)
	if err != nil {
		return Server{}, err
	}
	response, err := c.rest.Client.Do(plain)
	if err != nil {
		return Server{}, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if response.StatusCode >= http.StatusBadRequest {
		data, err = body(request.Do(ctx)) // which tries again, and fails in kubectl's words
	}
	if err != nil {
		return Server{}, err
	}
	var info version.Info
	if err := json.Unmarshal(data, &info); err != nil || info.GitVersion == "" {
		return Server{}, errors.New("the server does not answer /version as an API server does: check --server and the proxies " +
			"before it")
	}
	now, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		now = time.Now() // a proxy removed the header
	}
	return Server{Version: info.GitVersion, Now: now}, nil
}

// ServedKinds returns the kinds that the API server serves in a version of a group. There are none if it does not serve
// the version.
func (c *Cluster) ServedKinds(ctx context.Context, version schema.GroupVersion) (map[string]bool, error) {
	path := []string{"apis", version.Group, version.Version}
	if version.Group == "" {
		path = []string{"api", version.Version}
	}
	data, err := body(c.rest.Get().AbsPath(path...).SetHeader("Accept", "application/json").Do(ctx))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	kinds := map[string]bool{}
	for i := range list.APIResources {
		kinds[list.APIResources[i].Kind] = true
	}
	return kinds, nil
}

// Allowed reports whether the caller may send a request.
func (c *Cluster) Allowed(ctx context.Context, request authorizationv1.ResourceAttributes) (bool, error) {
	review, err := c.Authorization.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &request},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// List returns the objects of a resource in a namespace, or in all namespaces if namespace is empty, without their
// managedFields. The error is NotFound if the API server does not serve the resource.
func List[T any](
	ctx context.Context, c *Cluster, resource schema.GroupVersionResource, namespace string, options metav1.ListOptions,
) ([]*T, error) {
	return list(ctx, c, resource, namespace, options, withoutManagedFields[T])
}

// ListReduced is List for objects that still have their managedFields when it calls reduce for each of them.
func ListReduced[T any](
	ctx context.Context, c *Cluster, resource schema.GroupVersionResource, namespace string, reduce func(*T),
) ([]*T, error) {
	return list(ctx, c, resource, namespace, metav1.ListOptions{}, reduce)
}
