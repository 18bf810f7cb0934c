package check

import (
	"context"
	"slices"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"nstpl.dev/nstpl/manifests"
	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/version"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// readCommon reads the facts that both kinds of checks need.
func readCommon(ctx context.Context, c *cluster.Cluster, server cluster.Server) (common, error) {
	facts := common{server: server}
	var err error
	if facts.definitions, err = crd.All(); err != nil {
		return common{}, err
	}
	if facts.manifests, err = manifests.Objects(); err != nil {
		return common{}, err
	}
	var refs []ref
	for _, definition := range facts.definitions {
		refs = append(refs, ref{kind: definitionKind, name: definition.Name})
	}
	for _, object := range facts.manifests {
		refs = append(refs, refOf(object))
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		facts.stored = factsOf(refs, func(r ref) (*unstructured.Unstructured, error) { return get(ctx, c, r) })
	})
	reading.Go(func() {
		facts.hooks = factOf(readHooks(ctx, c))
		facts.services = factsOf(servicesOf(facts.hooks.value), func(r ref) (bool, error) { return exists(ctx, c, r) })
	})
	reading.Wait()
	return facts, nil
}

// get returns an object. Of a Secret, it reads the metadata only.
func get(ctx context.Context, c *cluster.Cluster, r ref) (*unstructured.Unstructured, error) {
	if r.kind.Kind != "Secret" {
		return c.Dynamic.Resource(resourceOf(r.kind)).Namespace(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	}
	found, err := c.Metadata.Resource(resourceOf(r.kind)).Namespace(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(found)
	return &unstructured.Unstructured{Object: fields}, err
}

func exists(ctx context.Context, c *cluster.Cluster, r ref) (bool, error) {
	_, err := c.Metadata.Resource(resourceOf(r.kind)).Namespace(r.namespace).Get(ctx, r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func readHooks(ctx context.Context, c *cluster.Cluster) ([]hook, error) {
	validating, err := hooksOf(ctx, c, "validatingwebhookconfigurations", false)
	if err != nil {
		return nil, err
	}
	mutating, err := hooksOf(ctx, c, "mutatingwebhookconfigurations", true)
	return append(validating, mutating...), err
}

// hooksOf returns the webhooks of all configurations of a resource.
func hooksOf(ctx context.Context, c *cluster.Cluster, resource string, mutates bool) ([]hook, error) {
	configurations, err := cluster.List[hookConfiguration](ctx, c,
		admissionregistrationv1.SchemeGroupVersion.WithResource(resource), "", metav1.ListOptions{})
	var hooks []hook
	for _, configuration := range configurations {
		for i := range configuration.Webhooks {
			w := &configuration.Webhooks[i]
			hooks = append(hooks, hook{
				configuration: configuration.Name, name: w.Name, client: w.ClientConfig, rules: w.Rules,
				namespaces: w.NamespaceSelector, objects: w.ObjectSelector, conditions: w.MatchConditions,
				failurePolicy: ptr.Deref(w.FailurePolicy, ""), sideEffects: ptr.Deref(w.SideEffects, ""), mutates: mutates,
			})
		}
	}
	return hooks, err
}

// servicesOf returns the Services that webhooks call, each once.
func servicesOf(hooks []hook) []ref {
	var services []ref
	found := map[ref]bool{}
	for i := range hooks {
		if r, ok := hooks[i].service(); ok && !found[r] {
			found[r] = true
			services = append(services, r)
		}
	}
	return services
}

// readBefore reads the facts for the checks before an installation. It creates objects by dry runs.
func readBefore(ctx context.Context, c *cluster.Cluster, server cluster.Server) (before, error) {
	facts := before{denied: map[ref]error{}}
	var err error
	if facts.common, err = readCommon(ctx, c, server); err != nil {
		return before{}, err
	}
	var versions []schema.GroupVersion
	for _, kind := range kindsOf(facts.manifests) {
		if version := kind.GroupVersion(); !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	var tried []*unstructured.Unstructured
	for _, object := range facts.needed() {
		if object.GetNamespace() == "" && apierrors.IsNotFound(facts.stored[refOf(object)].err) {
			tried = append(tried, object)
		}
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		facts.served = factsOf(versions, func(version schema.GroupVersion) (map[string]bool, error) {
			return c.ServedKinds(ctx, version)
		})
	})
	reading.Go(func() {
		facts.rights = factsOf(rightsToInstall(facts.needed()),
			func(request authorizationv1.ResourceAttributes) (bool, error) { return c.Allowed(ctx, request) })
	})
	reading.Go(func() {
		for i, err := range cluster.Each(tried, func(object *unstructured.Unstructured) error {
			_, err := create(ctx, c, object)
			return err
		}) {
			facts.denied[refOf(tried[i])] = err
		}
	})
	reading.Wait()
	return facts, nil
}

// create creates an object by a dry run.
func create(
	ctx context.Context, c *cluster.Cluster, object *unstructured.Unstructured,
) (*unstructured.Unstructured, error) {
	return c.Dynamic.Resource(resourceOf(object.GroupVersionKind())).Namespace(object.GetNamespace()).
		Create(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// ownResources are the resources of nstpl's kinds, in the order of the results.
var ownResources = []schema.GroupVersionResource{
	v1alpha1.NamespaceTemplates, v1alpha1.NamespaceInitializationConfigurations, v1alpha1.ClusterProtectedAttributes,
	v1alpha1.ProtectedAttributes, v1alpha1.SecurityContextConstraintses, v1alpha1.PolicySpaces,
	v1alpha1.PolicyRepositories, v1alpha1.TemplateExemptions,
}

// readAfter reads the facts for the checks of an installation. It creates a NamespaceTemplate and a Namespace by dry
// runs, whose names the API server generates.
func readAfter(ctx context.Context, c *cluster.Cluster, server cluster.Server) (after, error) {
	facts := after{plugin: version.Label(), own: map[string]fact[[]*ownObject]{}}
	var reading sync.WaitGroup
	var err error
	reading.Go(func() { facts.common, err = readCommon(ctx, c, server) })
	reading.Go(func() {
		facts.lease = factOf(c.Leases.Leases(v1alpha1.OperatorNamespace).Get(ctx, v1alpha1.OperatorLease,
			metav1.GetOptions{}))
	})
	reading.Go(func() { facts.endpoints = factOf(c.WebhookEndpoints(ctx)) })
	reading.Go(func() { facts.template = c.TryTemplate(ctx) })
	reading.Go(func() { facts.namespace = factOf(create(ctx, c, triedNamespace())) })
	reading.Go(func() { facts.namespaces = factOf(c.ListNamespaces(ctx, "")) })
	reading.Go(func() { facts.sync = factOf(get(ctx, c, syncDeployment)) })
	reading.Go(func() {
		leases := c.Leases.Leases(v1alpha1.OperatorNamespace)
		facts.syncLease = factOf(leases.Get(ctx, cluster.SyncLease, metav1.GetOptions{}))
	})
	reading.Go(func() {
		found := cluster.Each(ownResources, func(resource schema.GroupVersionResource) fact[[]*ownObject] {
			return factOf(cluster.ListReduced(ctx, c, resource, "", (*ownObject).reduce))
		})
		for i, resource := range ownResources {
			facts.own[resource.Resource] = found[i]
		}
	})
	reading.Wait()
	return facts, err
}

// triedNamespace returns a namespace that is never stored.
func triedNamespace() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": corev1.SchemeGroupVersion.String(), "kind": "Namespace",
		"metadata": map[string]any{"generateName": cluster.TriedPrefix},
	}}
}
