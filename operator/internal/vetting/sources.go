package vetting

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/attributes"
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

// unsuitableSources returns a problem for each source that the operator may not get, or whose content has a protected
// attribute. A Role that is applied together with the template may take effect a moment later. A source that does not
// exist may be created later.
func (v *review) unsuitableSources(ctx context.Context, kinds []resolvedKind) ([]error, error) {
	var problems []error
	for _, source := range v.sourceRights(kinds) {
		if len(content.IsPathSegmentName(source.ref.Namespace))+len(content.IsPathSegmentName(source.ref.Name)) > 0 {
			continue // no object has such a name, which compiling the template reports
		}
		object, err := v.get(ctx, source)
		for apierrors.IsForbidden(err) && v.isAggregating(ctx) {
			object, err = v.get(ctx, source)
		}
		switch {
		case apierrors.IsForbidden(err):
			problems = append(problems, populate.MissingSourceRight(source.ref,
				schema.GroupResource{Group: source.group, Resource: source.resource}))
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("get the source %s: %w", source.ref, err)
		default:
			guarded := populate.NewSource(source.ref, object).Guarded(source.ref, func() (*attributes.Rules, error) {
				return v.Attributes.RulesOfCluster(ctx)
			})
			if f := guarded.Failure; f != nil && (f.Reason == populate.ReasonSourceProtected || f.Transient()) {
				problems = append(problems, f)
			}
		}
	}
	return problems, nil
}

func (v *review) get(ctx context.Context, source sourceRight) (*unstructured.Unstructured, error) {
	resource := source.ref.GroupVersion().WithResource(source.resource)
	return v.Objects.Resource(resource).Namespace(source.ref.Namespace).Get(ctx, source.ref.Name, metav1.GetOptions{})
}
