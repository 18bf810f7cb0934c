package survey

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Populated holds the objects in a namespace that have the label of a template.
type Populated struct {
	// Objects are sorted by kind and name. They have their managedFields.
	Objects []*metav1.PartialObjectMetadata
	// Kinds are the kinds of which objects can exist in namespaces.
	Kinds []schema.GroupVersionKind
	// Unlisted are the resources that the user may not list, such as "leases.coordination.k8s.io". Their objects are
	// unknown.
	Unlisted []string
}

// ReadPopulated lists the populated objects in a namespace for a user who may not read templates, and so does not know
// the declared kinds. It lists all kinds of which the cluster lets clients create objects in namespaces.
func ReadPopulated(ctx context.Context, c *cluster.Cluster, namespace string) (Populated, error) {
	kinds, err := c.NamespacedKinds(ctx)
	if err != nil {
		return Populated{}, err
	}
	type result struct {
		objects []metav1.PartialObjectMetadata
		err     error
	}
	results := cluster.Each(kinds, func(kind cluster.Kind) result {
		list, err := c.Metadata.Resource(kind.Resource).Namespace(namespace).
			List(ctx, metav1.ListOptions{LabelSelector: populate.Labelled})
		if err != nil {
			return result{err: err}
		}
		return result{objects: list.Items}
	})
	var populated Populated
	for i, r := range results {
		populated.Kinds = append(populated.Kinds, kinds[i].GroupVersionKind)
		switch {
		case apierrors.IsForbidden(r.err):
			populated.Unlisted = append(populated.Unlisted, kinds[i].Resource.GroupResource().String())
		case apierrors.IsNotFound(r.err) || apierrors.IsMethodNotSupported(r.err): // the kind is being removed
		case r.err != nil:
			return Populated{}, fmt.Errorf("list %s: %w", kinds[i].Resource.GroupResource(), r.err)
		}
		for j := range r.objects {
			object := &r.objects[j]
			object.SetGroupVersionKind(kinds[i].GroupVersionKind)
			populated.Objects = append(populated.Objects, object)
		}
	}
	slices.SortFunc(populated.Objects, func(a, b *metav1.PartialObjectMetadata) int {
		return cmp.Or(
			strings.Compare(groupKindOf(a).String(), groupKindOf(b).String()), strings.Compare(a.Name, b.Name))
	})
	return populated, nil
}

func groupKindOf(object *metav1.PartialObjectMetadata) schema.GroupKind {
	return object.GroupVersionKind().GroupKind()
}
