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
	lists, errs := cluster.EachOrError(kinds, func(kind cluster.Kind) (*metav1.PartialObjectMetadataList, error) {
		return c.Metadata.Resource(kind.Resource).Namespace(namespace).
			List(ctx, metav1.ListOptions{LabelSelector: populate.Labelled})
	})
	var populated Populated
	for i, kind := range kinds {
		populated.Kinds = append(populated.Kinds, kind.GroupVersionKind)
		switch err := errs[i]; {
		case apierrors.IsForbidden(err):
			populated.Unlisted = append(populated.Unlisted, kind.Resource.GroupResource().String())
			continue
		case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err): // the kind is being removed
			continue
		case err != nil:
			return Populated{}, fmt.Errorf("list %s: %w", kind.Resource.GroupResource(), err)
		}
		for j := range lists[i].Items {
			object := &lists[i].Items[j]
			object.SetGroupVersionKind(kind.GroupVersionKind)
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
