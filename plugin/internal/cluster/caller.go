package cluster

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/attributes"
)

// Caller returns the user of the connection as the API server authenticates it. With impersonation, this is the
// impersonated user.
func (c *Cluster) Caller(ctx context.Context) (attributes.Requester, error) {
	review, err := c.Authentication.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return attributes.Requester{}, err
	}
	user := review.Status.UserInfo
	return attributes.Requester{Name: user.Username, Groups: user.Groups}, nil
}

// May reports whether the caller has a verb on an object, in a namespace unless that is empty.
func (c *Cluster) May(
	ctx context.Context, verb string, resource schema.GroupVersionResource, name, namespace string,
) (bool, error) {
	return c.Allowed(ctx, attributesOf(verb, resource, name, namespace))
}

// MayNotWrite reports whether an error is that of a request to create or patch an object which RBAC denied, so that
// admission has not judged it.
func MayNotWrite(err error) bool {
	return apierrors.IsForbidden(err) && (strings.Contains(err.Error(), " cannot create resource ") ||
		strings.Contains(err.Error(), " cannot patch resource "))
}

// attributesOf returns the attributes of a request for an object, in a namespace unless that is empty.
func attributesOf(
	verb string, resource schema.GroupVersionResource, name, namespace string,
) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Group: resource.Group, Version: resource.Version, Resource: resource.Resource, Name: name,
		Namespace: namespace, Verb: verb,
	}
}
