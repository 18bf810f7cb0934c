// Package cluster reads from the API server what the commands need, with the permissions of the user who runs them.
//
// The methods of Cluster return values of the API's types. They return the errors of the API server unchanged, so that
// callers can distinguish what the user may not read (Forbidden) from what does not exist (NotFound). If the cluster
// has no CustomResourceDefinitions of nstpl, they return a NotInstalledError.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// Cluster holds clients that share one connection.
type Cluster struct {
	Namespaces     corev1client.NamespaceInterface
	Leases         coordinationv1client.LeasesGetter
	Apps           appsv1client.ControllerRevisionsGetter
	Authentication authenticationv1client.AuthenticationV1Interface
	Authorization  authorizationv1client.AuthorizationV1Interface
	Dynamic        dynamic.Interface
	Metadata       metadata.Interface
	Mapper         meta.RESTMapperWithContext
	Discovery      discovery.CachedDiscoveryInterfaceWithContext
	// ChunkSize is how many objects a list request returns at most. Zero means no limit. The API server answers
	// requests for all chunks from memory, since it keeps the state of a list (KEP-4988, on by default since 1.34).
	ChunkSize int64

	rest *rest.RESTClient
}

// Connect returns clients for the cluster and the user that the kubeconfig and the flags select. It sends no request.
func Connect(getter genericclioptions.RESTClientGetter) (*Cluster, error) {
	config, err := getter.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	mapper, err := getter.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	kinds, err := getter.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	via := &connection{config: config, http: shared}
	core := clientOf(via, corev1client.NewForConfigAndClient)
	c := &Cluster{
		Leases:         clientOf(via, coordinationv1client.NewForConfigAndClient),
		Apps:           clientOf(via, appsv1client.NewForConfigAndClient),
		Authentication: clientOf(via, authenticationv1client.NewForConfigAndClient),
		Authorization:  clientOf(via, authorizationv1client.NewForConfigAndClient),
		Dynamic:        clientOf(via, dynamic.NewForConfigAndClient),
		Metadata:       clientOf(via, metadata.NewForConfigAndClient),
		Mapper:         meta.ToRESTMapperWithContext(mapper),
		Discovery:      discovery.ToCachedDiscoveryInterfaceWithContext(kinds), rest: clientOf(via, newRESTClient),
	}
	if via.err != nil {
		return nil, via.err
	}
	c.Namespaces = core.Namespaces()
	return c, nil
}

// connection is what clients share. Its error is the first of their creation.
type connection struct {
	config *rest.Config
	http   *http.Client
	err    error
}

// clientOf returns a client for some APIs.
func clientOf[T any](via *connection, create func(*rest.Config, *http.Client) (T, error)) T {
	client, err := create(via.config, via.http)
	via.err = cmp.Or(via.err, err)
	return client
}

// NotInstalledError is the error for a cluster that has no CustomResourceDefinitions of nstpl.
type NotInstalledError struct{}

func (NotInstalledError) Error() string {
	return "nstpl is not installed in this cluster: an administrator can install it with install.yaml of a release " +
		"('kubectl krew info nstpl' shows the homepage)"
}

// CheckInstalled returns a NotInstalledError if the API server does not serve the API of nstpl. Every user who can log
// in may ask that.
func (c *Cluster) CheckInstalled(ctx context.Context) error {
	err := c.rest.Get().AbsPath("apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return NotInstalledError{}
	}
	return nil // whatever else the error says, the request of the command itself will say it
}

// Templates returns all NamespaceTemplates, or a NotInstalledError. They lack the metadata that no command needs.
func (c *Cluster) Templates(ctx context.Context) ([]*v1alpha1.NamespaceTemplate, error) {
	templates, err := list(ctx, c, v1alpha1.NamespaceTemplates, "", metav1.ListOptions{}, reduceTemplate)
	return templates, c.installed(ctx, err)
}

// installed returns a NotInstalledError in place of the error of a request for nstpl's objects, if the cluster does not
// have their kind. To users without rights, the API server says that the request is forbidden in either case.
func (c *Cluster) installed(ctx context.Context, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return NotInstalledError{}
	case apierrors.IsForbidden(err):
		return cmp.Or(c.CheckInstalled(ctx), err)
	}
	return err
}

// Decode returns an object of one of nstpl's kinds that was read as an unstructured object.
func Decode[T any](object *unstructured.Unstructured) (*T, error) {
	decoded := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, decoded); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", strings.ToLower(object.GetKind()), object.GetName(), err)
	}
	return decoded, nil
}

// Applier returns an applier that writes with the permissions of the caller, one object at a time.
func (c *Cluster) Applier() *populate.Applier {
	return populate.NewApplier(c.Metadata, c.Dynamic, c.Mapper, 1, nil)
}

// Objects returns a client for the objects of a kind in a namespace. The version of the kind may be empty.
func (c *Cluster) Objects(
	ctx context.Context, kind schema.GroupVersionKind, namespace string,
) (dynamic.ResourceInterface, error) {
	mapping, err := c.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, fmt.Errorf("%s is not namespace-scoped: remove it from the template", kind.GroupKind())
	}
	return c.Dynamic.Resource(mapping.Resource).Namespace(namespace), nil
}

// Each calls do for every item, for at most 32 items at a time. It returns the results in the order of the items.
func Each[T, R any](items []T, do func(T) R) []R {
	const maxConcurrent = 32
	results := make([]R, len(items))
	var next atomic.Int64
	var working sync.WaitGroup
	for range min(maxConcurrent, len(items)) {
		working.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(items)); i = next.Add(1) - 1 {
				results[i] = do(items[i])
			}
		})
	}
	working.Wait()
	return results
}

// EachOrError calls do for every item, as Each does. It returns the results and the errors in the order of the items.
func EachOrError[T, R any](items []T, do func(T) (R, error)) (results []R, errs []error) {
	type answer struct {
		result R
		err    error
	}
	for _, a := range Each(items, func(item T) answer {
		result, err := do(item)
		return answer{result, err}
	}) {
		results, errs = append(results, a.result), append(errs, a.err)
	}
	return results, errs
}
