package cluster

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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

// MayUse reports whether the caller has the verb use on a NamespaceTemplate.
func (c *Cluster) MayUse(ctx context.Context, template string) (bool, error) {
	return c.Allowed(ctx, useOf(v1alpha1.NamespaceTemplates.Resource, template, ""))
}

// useOf returns the attributes of the verb use on an object of nstpl, for a namespace unless that is empty.
func useOf(resource, name, namespace string) authorizationv1.ResourceAttributes {
	return authorizationv1.ResourceAttributes{
		Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version, Resource: resource, Name: name,
		Namespace: namespace, Verb: v1alpha1.VerbUse,
	}
}
