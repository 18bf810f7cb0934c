package vetting

import (
	"context"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/operator/engine/render"
	objectschema "nstpl.dev/nstpl/operator/engine/schema"
)

// explain returns the problems of an object that the API server rejects. The API server names one unknown field at a
// time, and no values that it cannot decode. The schema of the object's kind tells the others, and what to write
// instead.
func (v *review) explain(ctx context.Context, t trial, rejected *answer) []objectschema.Problem {
	if len(rejected.problems) == 0 {
		return nil
	}
	problems := v.catalog(ctx, t).Check(t.sample.Object)
	for i := range problems {
		found := &problems[i]
		found.Message, found.Remedy = render.Unrender(found.Message), render.Unrender(found.Remedy)
	}
	return mergeProblems(problems, rejected)
}

// mergeProblems returns the problems that a schema explains, and those of the API server's that are others.
func mergeProblems(explained []objectschema.Problem, rejected *answer) []objectschema.Problem {
	merged := slices.Clone(explained)
	for _, problem := range rejected.problems {
		isSame := func(other objectschema.Problem) bool {
			return problem.Path == other.Path || rejected.bySchema &&
				(problem.Path == "" || lastField(problem.Path) == lastField(other.Path))
		}
		if !slices.ContainsFunc(explained, isSame) {
			merged = append(merged, problem)
		}
	}
	return merged
}

// lastField returns the last field or key of a path. The API server identifies items of lists by their keys, schemas by
// their index, and the API server writes data.key where schemas write data[key].
func lastField(path string) string {
	steps := manifest.SplitField(path)
	if len(steps) == 0 {
		return ""
	}
	return steps[len(steps)-1]
}

// catalog returns the schemas of Kubernetes and that of a custom kind.
func (v *review) catalog(ctx context.Context, t trial) *objectschema.Catalog {
	if catalog := v.catalogs[t.resource.GroupResource()]; catalog != nil {
		return catalog
	}
	catalog := &objectschema.Catalog{}
	if definition := v.definition(ctx, t.resource.GroupResource()); definition != nil {
		if custom, err := objectschema.New(definition); err == nil {
			catalog = custom
		}
	}
	if v.catalogs == nil {
		v.catalogs = map[schema.GroupResource]*objectschema.Catalog{}
	}
	v.catalogs[t.resource.GroupResource()] = catalog
	return catalog
}

// definition returns the CustomResourceDefinition of a resource, or nil if it has none that can be read.
func (v *review) definition(
	ctx context.Context, resource schema.GroupResource,
) *apiextensionsv1.CustomResourceDefinition {
	if render.BuiltIn(resource.Group) {
		return nil
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	if err := v.Live.Get(ctx, client.ObjectKey{Name: resource.String()}, found); err != nil {
		return nil // the message is then that of the API server
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, definition); err != nil {
		return nil
	}
	return definition
}
