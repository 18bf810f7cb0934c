package cluster

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// Constraints returns all SecurityContextConstraints. The error may be a NotInstalledError.
func (c *Cluster) Constraints(ctx context.Context) ([]*v1alpha1.SecurityContextConstraints, error) {
	return own[v1alpha1.SecurityContextConstraints](ctx, c, v1alpha1.SecurityContextConstraintses, "")
}

// Namespace returns a namespace.
func (c *Cluster) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return c.Namespaces.Get(ctx, name, metav1.GetOptions{})
}

// MayCreatePods reports whether the caller may create pods in a namespace. It is true if that is unknown.
func (c *Cluster) MayCreatePods(ctx context.Context, namespace string) bool {
	allowed, err := c.Allowed(ctx, authorizationv1.ResourceAttributes{
		Version: corev1.SchemeGroupVersion.Version, Resource: "pods", Namespace: namespace, Verb: "create",
	})
	return err != nil || allowed
}

// LacksServiceAccount reports whether a service account does not exist. It is false if the user may not ask.
func (c *Cluster) LacksServiceAccount(ctx context.Context, namespace, name string) bool {
	_, err := c.ServiceAccountAnnotations(ctx, namespace, name)
	return apierrors.IsNotFound(err)
}

// ServiceAccountAnnotations returns the annotations of a service account.
func (c *Cluster) ServiceAccountAnnotations(
	ctx context.Context, namespace, name string,
) (map[string]string, error) {
	accounts := c.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")).Namespace(namespace)
	account, err := accounts.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return account.Annotations, nil
}

// UserMayUseConstraint reports whether a user has the verb use on SecurityContextConstraints in a namespace.
func (c *Cluster) UserMayUseConstraint(
	ctx context.Context, constraint, namespace string, who attributes.Requester,
) (bool, error) {
	use := attributesOf(v1alpha1.VerbUse, v1alpha1.SecurityContextConstraintses, constraint, namespace)
	review, err := c.Authorization.SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{User: who.Name, Groups: who.Groups, ResourceAttributes: &use},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
