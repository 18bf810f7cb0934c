package vetting

import (
	"context"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// sourceRight is the right to get a source of the updated template.
type sourceRight struct {
	right
	ref render.SourceRef
}

// sourceRights returns the rights to get the sources of the updated template. It omits those of kinds that no template
// can contain, which are reported as such, and those of kinds that the cluster does not serve yet.
func (v *review) sourceRights(kinds []resolvedKind) []sourceRight {
	var rights []sourceRight
	for _, ref := range render.SourceRefs(&v.updated.Spec) {
		i := slices.IndexFunc(kinds, func(k resolvedKind) bool { return k.kind == ref.GroupVersionKind })
		if i < 0 || ref.Name == "" || ref.Namespace == "" {
			continue
		}
		get := kinds[i].right("get")
		get.name, get.namespace = ref.Name, ref.Namespace
		rights = append(rights, sourceRight{get, ref})
	}
	return rights
}

// judgeSources returns a problem for each source that the author may not get. Otherwise the operator would show the
// author, in the selected namespaces, what the author may not read.
func (v *review) judgeSources(ctx context.Context, kinds []resolvedKind) ([]error, error) {
	if v.unlimited {
		return nil, nil
	}
	var rights []right
	for _, source := range v.sourceRights(kinds) {
		rights = append(rights, source.right)
	}
	missing, err := v.author.missing(ctx, rights)
	var problems []error
	for _, get := range missing {
		problems = append(problems, rightsProblem{fmt.Errorf("%s may not %s, which spec.sources copies: "+
			"ask an administrator for that right, or to make the change", v.author, get)})
	}
	return problems, err
}

// unreadSources returns a problem for each source that the operator may not get. A Role that is applied together with
// the template may take effect a moment later.
func (v *review) unreadSources(ctx context.Context, kinds []resolvedKind) ([]error, error) {
	var problems []error
	for _, source := range v.sourceRights(kinds) {
		isAllowed, err := v.mayGet(ctx, source.right)
		for err == nil && !isAllowed && v.isAggregating(ctx) {
			isAllowed, err = v.mayGet(ctx, source.right)
		}
		if err != nil {
			return nil, fmt.Errorf("check the operator's right to get the source %s: %w", source.ref, err)
		}
		if !isAllowed {
			problems = append(problems, populate.MissingSourceRight(source.ref,
				schema.GroupResource{Group: source.group, Resource: source.resource}))
		}
	}
	return problems, nil
}

// mayGet reports whether the operator holds a right.
func (v *review) mayGet(ctx context.Context, get right) (bool, error) {
	review, err := v.clients.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: get.attributes()},
		}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed, err
}
