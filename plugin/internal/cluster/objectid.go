package cluster

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// ObjectID returns the ID of the object that an argument names as TYPE/NAME. The type may be one that the API server
// does not serve, if templates declare the object.
func (c *Cluster) ObjectID(argument string, declared []populate.ObjectID) (populate.ObjectID, error) {
	resource, name, found := strings.Cut(argument, "/")
	if !found || resource == "" || name == "" {
		return populate.ObjectID{}, fmt.Errorf("%q is not an object as TYPE/NAME, such as limitrange/defaults", argument)
	}
	for _, id := range declared {
		if strings.EqualFold(id.String(), argument) {
			return id, nil
		}
	}
	full, short := schema.ParseResourceArg(strings.ToLower(resource))
	kind := schema.GroupVersionKind{}
	var err error
	if full != nil {
		kind, _ = c.Mapper.KindFor(*full)
	}
	if kind.Empty() {
		kind, err = c.Mapper.KindFor(short.WithVersion(""))
	}
	if err != nil {
		return populate.ObjectID{}, fmt.Errorf("the server doesn't have a resource type %q", resource)
	}
	return populate.ObjectID{GroupKind: kind.GroupKind(), Name: name}, nil
}
