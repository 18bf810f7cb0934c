package populate

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Observer reads the metadata of objects from the API server, with one list request for each kind.
type Observer struct {
	Client metadata.Interface
	Mapper meta.RESTMapper
	// ChunkSize is how many objects a request returns at most. Zero means no limit.
	ChunkSize int64
}

// Label selectors of the objects that have a template's label, and of those that do not.
const (
	Labelled   = v1alpha1.TemplateNameLabel
	Unlabelled = "!" + v1alpha1.TemplateNameLabel
)

// Observe returns the objects of a kind that a label selector selects, by namespace, with the metadata that plans read.
// An empty namespace means all namespaces. If the cluster does not have the kind, the result is empty.
func (o *Observer) Observe(
	ctx context.Context, kind schema.GroupKind, namespace, selector string,
) (map[string][]*metav1.PartialObjectMetadata, error) {
	mapping, err := o.Mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	objects := o.Client.Resource(mapping.Resource).Namespace(namespace)
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return objects.List(ctx, options)
	})
	list.PageSize = o.ChunkSize
	for {
		byNamespace, reduced := map[string][]*metav1.PartialObjectMetadata{}, newReducer(mapping.GroupVersionKind)
		err = list.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(item runtime.Object) error {
			object := reduced.metadata(item.(*metav1.PartialObjectMetadata))
			byNamespace[object.Namespace] = append(byNamespace[object.Namespace], object)
			return nil
		})
		if !apierrors.IsResourceExpired(err) || list.PageSize == 0 {
			return byNamespace, err
		}
		list.PageSize = 0 // the API server forgot the state of the list, so all objects are listed at once
	}
}

// KindsToObserve returns the kinds of which objects of templates may exist: the declared kinds and those that were
// applied before.
func KindsToObserve(templates []*v1alpha1.NamespaceTemplate, declared ...Declared) []schema.GroupKind {
	var kinds []schema.GroupKind
	seen := map[schema.GroupKind]bool{}
	add := func(kind schema.GroupKind) {
		if !seen[kind] {
			seen[kind] = true
			kinds = append(kinds, kind)
		}
	}
	for _, template := range templates {
		for _, kind := range template.Status.Kinds {
			add(schema.GroupKind{Group: kind.Group, Kind: kind.Kind})
		}
	}
	for _, d := range declared {
		for _, object := range d.Objects {
			add(object.GroupVersionKind().GroupKind())
		}
	}
	return kinds
}
