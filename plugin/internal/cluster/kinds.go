package cluster

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Kind is a kind with its resource.
type Kind struct {
	schema.GroupVersionKind
	Resource schema.GroupVersionResource
}

// records are kinds of objects that controllers write about other objects. Lists of Endpoints result in a warning.
var records = []string{"Event", "Endpoints", "EndpointSlice"}

// NamespacedKinds returns the kinds of which objects can be created, patched and listed in namespaces, except for
// records. Kinds of an API server that does not answer are not among them.
func (c *Cluster) NamespacedKinds(ctx context.Context) ([]Kind, error) {
	c.Discovery.InvalidateWithContext(ctx) // the cached kinds may lack one that was added since
	lists, err := discovery.ServerPreferredNamespacedResourcesWithContext(ctx, c.Discovery)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	var kinds []Kind
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if !slices.Contains(records, resource.Kind) && supports(resource, "create", "patch", "list") {
				kinds = append(kinds, Kind{version.WithKind(resource.Kind), version.WithResource(resource.Name)})
			}
		}
	}
	return kinds, nil
}

func supports(resource *metav1.APIResource, verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(resource.Verbs, verb) })
}
