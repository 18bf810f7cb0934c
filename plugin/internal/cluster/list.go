package cluster

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Chunks lists objects in chunks of a size, or all objects at once if the size is 0. It calls list for each chunk with
// the options of the request, and list returns the token with which the next chunk begins.
//
// The API server forgets the state of a list after some minutes. Chunks then calls restart, which has to drop the
// objects of the earlier chunks, and lists all objects at once: only that cannot expire.
func Chunks(
	ctx context.Context, size int64, options metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (next string, err error), restart func(),
) error {
	options.Limit, options.Continue = size, ""
	for {
		next, err := list(ctx, options)
		switch {
		case apierrors.IsResourceExpired(err) && options.Continue != "":
			restart()
			options.Limit, options.Continue = 0, ""
			continue
		case err != nil || next == "":
			return err
		}
		options.Continue = next
	}
}

// ListObjects returns the objects of a resource in a namespace, or in all namespaces if namespace is empty, with all of
// their fields.
func (c *Cluster) ListObjects(
	ctx context.Context, resource schema.GroupVersionResource, namespace, selector string,
) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := Chunks(ctx, c.ChunkSize, metav1.ListOptions{LabelSelector: selector},
		func(ctx context.Context, options metav1.ListOptions) (string, error) {
			list, err := c.Dynamic.Resource(resource).Namespace(namespace).List(ctx, options)
			if err != nil {
				return "", err
			}
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
			return list.GetContinue(), nil
		}, func() { objects = nil })
	return objects, err
}

// chunk is a part of a list of objects.
type chunk[T any] struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []T             `json:"items"`
}

// list returns the objects of a resource in a namespace, or in all namespaces if namespace is empty. It decodes one
// chunk at a time, and calls reduce for each of its objects, while it requests the next chunk.
func list[T any](
	ctx context.Context, c *Cluster, resource schema.GroupVersionResource, namespace string,
	options metav1.ListOptions, reduce func(*T),
) ([]*T, error) {
	var objects []*T
	var failed error
	add := func(data []byte) (next string) {
		decoded, err := decode[T](data)
		if err != nil {
			failed = fmt.Errorf("decode the list of %s: %w", resource.GroupResource(), err)
			return ""
		}
		for i := range decoded.Items {
			object := decoded.Items[i]
			reduce(&object)
			objects = append(objects, &object)
		}
		return decoded.Metadata.Continue
	}
	var adding sync.WaitGroup
	err := Chunks(ctx, c.ChunkSize, options, func(ctx context.Context, options metav1.ListOptions) (string, error) {
		request := c.rest.Get().AbsPath(pathOf(resource, namespace)...).
			VersionedParams(&options, metav1.ParameterCodec)
		if isOfKubernetes[T]() {
			request.SetHeader("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON)
		}
		data, err := body(request.Do(ctx))
		adding.Wait()
		if err != nil || failed != nil {
			return "", cmp.Or(err, failed)
		}
		if token, ok := nextChunk(data); ok {
			adding.Go(func() { add(data) })
			return token, nil
		}
		next := add(data)
		return next, failed
	}, func() { objects = nil })
	adding.Wait()
	return objects, cmp.Or(err, failed)
}

// nextChunk returns the token of the next chunk from the metadata of a chunk in JSON, without decoding its items. It
// finds the metadata only where the API server writes it: after all items of a custom resource.
func nextChunk(data []byte) (token string, ok bool) {
	if bytes.HasPrefix(data, protobufPrefix) {
		return "", false
	}
	at := bytes.LastIndex(data, []byte(`"metadata":`))
	if at < 0 {
		return "", false
	}
	// The rest of the text is valid in braces only if it is the end of the list itself, and not of an item.
	var end struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	err := json.UnmarshalCaseSensitivePreserveInts(slices.Concat([]byte("{"), data[at:]), &end)
	return end.Metadata.Continue, err == nil
}

// isOfKubernetes reports whether a type is one of Kubernetes' own, which the API server also sends as protobuf: that
// takes both sides a fraction of the time.
func isOfKubernetes[T any]() bool {
	object, ok := any(new(T)).(runtime.Object)
	if !ok {
		return false
	}
	_, _, err := scheme.Scheme.ObjectKinds(object)
	return err == nil
}

// protobufPrefix is how objects in protobuf begin. It has no name in apimachinery.
var protobufPrefix = []byte("k8s\x00")

// decode decodes a chunk in protobuf or JSON. An API server may answer with JSON although protobuf is preferred.
func decode[T any](data []byte) (decoded chunk[T], err error) {
	if !bytes.HasPrefix(data, protobufPrefix) {
		err := json.UnmarshalCaseSensitivePreserveInts(data, &decoded)
		return decoded, err
	}
	object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), data)
	if err != nil {
		return decoded, err
	}
	list, err := meta.ListAccessor(object)
	if err != nil {
		return decoded, err
	}
	decoded.Metadata.Continue = list.GetContinue()
	return decoded, meta.EachListItem(object, func(item runtime.Object) error {
		one, ok := any(item).(*T)
		if !ok {
			return fmt.Errorf("it contains a %T", item)
		}
		decoded.Items = append(decoded.Items, *one)
		return nil
	})
}

// body returns the body of a response, or the error that the API server describes in it.
func body(response rest.Result) ([]byte, error) {
	if err := response.Error(); err != nil {
		return nil, err
	}
	return response.Raw()
}

func pathOf(resource schema.GroupVersionResource, namespace string) []string {
	path := []string{"apis", resource.Group, resource.Version}
	if resource.Group == "" {
		path = []string{"api", resource.Version}
	}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	return append(path, resource.Resource)
}

// newRESTClient returns a client for paths of any API group.
func newRESTClient(config *rest.Config, client *http.Client) (*rest.RESTClient, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.UnversionedRESTClientForConfigAndClient(config, client)
}

// ListNamespaces returns the namespaces that a label selector selects. They lack the metadata that no command needs.
func (c *Cluster) ListNamespaces(ctx context.Context, selector string) ([]*corev1.Namespace, error) {
	return list(ctx, c, corev1.SchemeGroupVersion.WithResource("namespaces"), "",
		metav1.ListOptions{LabelSelector: selector}, reduceNamespace)
}

// reduceNamespace removes metadata of a namespace. The managedFields show since when a namespace is opted out.
func reduceNamespace(ns *corev1.Namespace) {
	delete(ns.Annotations, corev1.LastAppliedConfigAnnotation)
	if _, hasOptOut := ns.Annotations[v1alpha1.OptOutAnnotation]; !hasOptOut {
		ns.ManagedFields = nil
	}
}

func reduceTemplate(template *v1alpha1.NamespaceTemplate) {
	delete(template.Annotations, corev1.LastAppliedConfigAnnotation)
	template.ManagedFields = nil
}

// ClusterRoles returns the rules of all ClusterRoles.
func (c *Cluster) ClusterRoles(ctx context.Context) ([]*rbacv1.ClusterRole, error) {
	return list(ctx, c, rbacv1.SchemeGroupVersion.WithResource("clusterroles"), "", metav1.ListOptions{},
		func(role *rbacv1.ClusterRole) { role.ObjectMeta = identity(role.ObjectMeta) })
}

// Roles returns the rules of the Roles in a namespace.
func (c *Cluster) Roles(ctx context.Context, namespace string) ([]*rbacv1.Role, error) {
	return list(ctx, c, rbacv1.SchemeGroupVersion.WithResource("roles"), namespace, metav1.ListOptions{},
		func(role *rbacv1.Role) { role.ObjectMeta = identity(role.ObjectMeta) })
}

// identity returns only the name and the namespace of an object's metadata.
func identity(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: meta.Name, Namespace: meta.Namespace}
}

// Names returns the names of the objects of a cluster-scoped resource that begin with a prefix. It asks for a table,
// which is a small part of the size of the objects, from the cache of the API server.
func (c *Cluster) Names(ctx context.Context, resource schema.GroupVersionResource, prefix string) ([]string, error) {
	data, err := body(c.rest.Get().AbsPath(pathOf(resource, "")...).
		Param("resourceVersion", "0").Param("includeObject", string(metav1.IncludeNone)).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx))
	if err != nil {
		return nil, err
	}
	var table metav1.Table
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &table); err != nil {
		return nil, fmt.Errorf("decode the table of %s: %w", resource.GroupResource(), err)
	}
	var names []string
	for _, row := range table.Rows {
		for i, column := range table.ColumnDefinitions {
			if column.Format != "name" || i >= len(row.Cells) {
				continue
			}
			if name, ok := row.Cells[i].(string); ok && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}
