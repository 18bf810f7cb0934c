package populate

import (
	"context"
	"slices"

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
	Mapper meta.RESTMapperWithContext
	// ChunkSize is how many objects a request returns at most. Zero means no limit.
	ChunkSize int64
}

// Label selectors of the objects that have a template's label, and of those that do not.
const (
	Labelled   = v1alpha1.TemplateNameLabel
	Unlabelled = "!" + v1alpha1.TemplateNameLabel
)

// Listed holds the objects of a kind that a list returned. The zero value holds none.
type Listed struct {
	kind        metav1.TypeMeta
	byNamespace map[string][]*Reduced
}

// NewListed returns the objects of a kind, from all of their metadata.
func NewListed(kind schema.GroupVersionKind, objects ...*metav1.PartialObjectMetadata) Listed {
	apiVersion, name := kind.ToAPIVersionAndKind()
	listed := Listed{metav1.TypeMeta{APIVersion: apiVersion, Kind: name}, map[string][]*Reduced{}}
	var reducer Reducer
	for _, object := range objects {
		listed.add(reducer.Reduce(object))
	}
	return listed
}

func (l Listed) add(object *Reduced) {
	l.byNamespace[object.Namespace] = append(l.byNamespace[object.Namespace], object)
}

// In returns the metadata of the objects in a namespace.
func (l Listed) In(namespace string) []*metav1.PartialObjectMetadata {
	var objects []*metav1.PartialObjectMetadata
	for _, reduced := range l.byNamespace[namespace] {
		objects = append(objects, reduced.Metadata(l.kind))
	}
	return objects
}

// Len returns the number of objects in all namespaces if they are of a kind, and otherwise 0.
func (l Listed) Len(kind schema.GroupKind) int {
	number := 0
	if l.kind.GroupVersionKind().GroupKind() != kind {
		return number
	}
	for _, objects := range l.byNamespace {
		number += len(objects)
	}
	return number
}

// Keep drops the objects for which keep returns false.
func (l Listed) Keep(keep func(namespace, name string) bool) {
	for namespace, objects := range l.byNamespace {
		l.byNamespace[namespace] = slices.DeleteFunc(objects, func(r *Reduced) bool { return !keep(namespace, r.Name) })
	}
}

// Observe returns the objects of a kind that a label selector selects, with the metadata that plans read. An empty
// namespace means all namespaces. If the cluster does not have the kind, the result is empty.
func (o *Observer) Observe(ctx context.Context, kind schema.GroupKind, namespace, selector string) (Listed, error) {
	mapping, err := o.Mapper.RESTMappingWithContext(ctx, kind)
	if meta.IsNoMatchError(err) {
		return Listed{}, nil
	}
	if err != nil {
		return Listed{}, err
	}
	objects := o.Client.Resource(mapping.Resource).Namespace(namespace)
	list := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return objects.List(ctx, options)
	})
	list.PageSize, list.PageBufferSize = o.ChunkSize, 1
	for {
		listed := NewListed(mapping.GroupVersionKind)
		var reducer Reducer
		err = list.EachListItem(ctx, metav1.ListOptions{LabelSelector: selector}, func(item runtime.Object) error {
			listed.add(reducer.Reduce(item.(*metav1.PartialObjectMetadata)))
			return nil
		})
		if !apierrors.IsResourceExpired(err) || list.PageSize == 0 {
			return listed, err
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
