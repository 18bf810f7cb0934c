package cluster

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// ObjectID returns the ID of the object that an argument names as TYPE/NAME. The type may be one that the API server
// does not serve, if templates declare the object.
func (c *Cluster) ObjectID(
	ctx context.Context, argument string, declared []populate.ObjectID,
) (populate.ObjectID, error) {
	resource, name, found := strings.Cut(argument, "/")
	if !found || resource == "" || name == "" {
		return populate.ObjectID{}, fmt.Errorf("%q is not an object as TYPE/NAME, such as limitrange/defaults", argument)
	}
	for _, id := range declared {
		if strings.EqualFold(id.String(), argument) {
			return id, nil
		}
	}
	kind, err := c.KindOf(ctx, resource)
	return populate.ObjectID{GroupKind: kind.GroupKind(), Name: name}, err
}

// KindOf returns the kind of a resource as arguments name it: pods, po, deployments.apps or NetworkPolicy.
func (c *Cluster) KindOf(ctx context.Context, argument string) (schema.GroupVersionKind, error) {
	full, resource := schema.ParseResourceArg(strings.ToLower(argument))
	if full != nil {
		if kind, err := c.Mapper.KindForWithContext(ctx, *full); err == nil {
			return kind, nil
		}
	}
	kind, err := c.Mapper.KindForWithContext(ctx, resource.WithVersion(""))
	if meta.IsNoMatchError(err) {
		err = fmt.Errorf("the server doesn't have a resource type %q", argument)
	}
	return kind, err
}
