package scaffold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// policyKinds are the kinds of objects that --from copies by default.
const policyKinds = "roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io," +
	"networkpolicies.networking.k8s.io,resourcequotas,limitranges,serviceaccounts,configmaps,poddisruptionbudgets.policy"

// fromCluster reads a namespace and its objects, and returns a template with them.
func (x *scaffold) fromCluster(ctx context.Context, args []string) (*draft, error) {
	name, err := cli.NamespaceResource().Name(x.namespace)
	if err != nil {
		return nil, err
	}
	selects, err := x.namespaceSelector()
	if err != nil {
		return nil, err
	}
	kinds := policyKinds
	if len(args) > 0 {
		kinds = args[0]
	}
	c, err := x.Connect()
	if err != nil {
		return nil, err
	}
	defer x.Progress("reading the objects of " + name)()
	ns, err := c.Namespaces.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	r := reader{c}
	mappings, err := r.mappings(ctx, strings.Split(kinds, ","))
	if err != nil {
		return nil, err
	}
	lists, errs := cluster.EachOrError(mappings, func(mapping *meta.RESTMapping) ([]*unstructured.Unstructured, error) {
		return r.ListObjects(ctx, mapping.Resource, name, x.objects)
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return fromNamespace(ctx, ns, slices.Concat(lists...), cmp.Or(x.name, objectName(name)), selects), nil
}

type reader struct{ *cluster.Cluster }

// mappings returns the resources with some names, such as networkpolicies, netpol or roles.rbac.authorization.k8s.io.
func (r reader) mappings(ctx context.Context, names []string) ([]*meta.RESTMapping, error) {
	var mappings []*meta.RESTMapping
	for _, name := range names {
		group := schema.ParseGroupResource(strings.ToLower(strings.TrimSpace(name)))
		kind, err := r.Mapper.KindForWithContext(ctx, group.WithVersion(""))
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("the server doesn't have a resource type %q", name)
		}
		if err != nil {
			return nil, err
		}
		mapping, err := r.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
		switch {
		case err != nil:
			return nil, err
		case mapping.Scope.Name() != meta.RESTScopeNameNamespace:
			return nil, fmt.Errorf("%s are not namespace-scoped, so a template cannot declare them", mapping.Resource.Resource)
		case kind.GroupKind() == schema.GroupKind{Kind: "Secret"}:
			return nil, errors.New("secrets are never copied: their values must not get into files")
		}
		mappings = append(mappings, mapping)
	}
	return mappings, nil
}

// all returns the objects of a tool in all namespaces. The first kind must be installed; the others may be. Unread are
// the resources that are only named, and that the user may not list.
func (r reader) all(ctx context.Context, t *tool) (objects []*unstructured.Unstructured, unread []string, err error) {
	for i, kind := range t.kindsToRead() {
		mapping, err := r.Mapper.RESTMappingWithContext(ctx, kind)
		if meta.IsNoMatchError(err) && i > 0 {
			continue
		}
		if meta.IsNoMatchError(err) {
			return nil, nil, fmt.Errorf("the cluster has no kind %s: read exported objects with -f", kind)
		}
		if err != nil {
			return nil, nil, err
		}
		found, err := r.ListObjects(ctx, mapping.Resource, "", "")
		if apierrors.IsForbidden(err) && i >= len(t.clusterKinds) {
			unread = append(unread, mapping.Resource.GroupResource().String())
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		objects = append(objects, found...)
	}
	return objects, unread, nil
}
