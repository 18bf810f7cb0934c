package scaffold

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

const capsuleGroup = "capsule.clastix.io"

var (
	capsuleTenant = schema.GroupKind{Group: capsuleGroup, Kind: "Tenant"}
	capsuleGlobal = schema.GroupKind{Group: capsuleGroup, Kind: "GlobalTenantResource"}
	capsuleLocal  = schema.GroupKind{Group: capsuleGroup, Kind: "TenantResource"}
)

// fromCapsule converts Tenants to PolicySpaces with a template each, and the resources that Capsule distributes in
// tenants to further templates.
func fromCapsule(ctx context.Context, objects []*unstructured.Unstructured, _ *metav1.LabelSelector) *draft {
	d := &draft{}
	tenants := objectsOf(objects, capsuleTenant)
	for _, tenant := range tenants {
		d.addTenant(ctx, tenant)
	}
	globals, locals := objectsOf(objects, capsuleGlobal), objectsOf(objects, capsuleLocal)
	for _, source := range globals {
		d.addTenantResources(ctx, source, tenantsOf(source, tenants))
	}
	for _, source := range locals {
		owners := slices.DeleteFunc(slices.Clone(tenants), func(t *unstructured.Unstructured) bool {
			return !slices.Contains(texts(t.Object, "status", "namespaces"), source.GetNamespace())
		})
		d.addTenantResources(ctx, source, owners)
	}
	if len(tenants)+len(globals)+len(locals) == 0 {
		return nil
	}
	return d
}

// spaceName returns the name of the PolicySpace of a tenant.
func spaceName(tenant string) string {
	if isName(tenant) {
		return tenant
	}
	return strings.ReplaceAll(objectName(tenant), ".", "-")
}

// addTenant adds a PolicySpace for a tenant, and a template with what each of its namespaces has.
func (d *draft) addTenant(ctx context.Context, tenant *unstructured.Unstructured) {
	name := spaceName(tenant.GetName())
	s := space{item: d.item("tenant/%s", tenant.GetName()), name: name}
	s.add("Converted from Tenant %s of Capsule.", tenant.GetName())
	s.add("Namespaces are deleted with their Tenant. After you stopped Capsule, and before you delete the Tenant, remove its " +
		"ownerReferences from the namespaces.")
	s.add("To let users create namespaces in it, grant them the verb use on policyspaces/%s.", name)
	for _, namespace := range texts(tenant.Object, "status", "namespaces") {
		if isName(namespace) {
			s.namespaces = append(s.namespaces, namespace)
		}
	}
	t := template{item: s.item, name: name}
	t.add("Converted from Tenant %s of Capsule.", tenant.GetName())
	t.selectSpace(name)
	t.prune = true // a namespace that leaves the tenant must not keep the access of its owners
	t.addTenantLists(&s, tenant)
	t.addOwners(tenant)
	t.addTenantBindings(tenant)
	t.addNamespaceOptions(&s, tenant)
	t.addServiceOptions(tenant)
	s.addTenantOptions(&t, tenant)
	d.addSpace(s)
	if t.size() > 0 {
		d.addTemplate(ctx, t)
	}
	d.addSelectedMetadata(ctx, t, tenant)
}

// addNamespaceOptions adds the labels and annotations that a tenant gives its namespaces, and the number of namespaces
// that it may have.
func (t *template) addNamespaceOptions(s *space, tenant *unstructured.Unstructured) {
	options := at[map[string]any](tenant.Object, "spec", "namespaceOptions")
	if limit := options["quota"]; limit != nil {
		s.quotas = append(s.quotas, map[string]any{string(quota.Namespaces): limit})
	}
	t.addTenantMetadata(at[map[string]any](options, "additionalMetadata"), tenant)
	for _, metadata := range each(options, "additionalMetadataList") {
		if !hasSelector(metadata) {
			t.addTenantMetadata(metadata, tenant)
		}
	}
}

func hasSelector(metadata map[string]any) bool {
	return len(at[map[string]any](metadata, "namespaceSelector")) > 0
}

// addSelectedMetadata adds a template for the labels and annotations that a tenant gives some of its namespaces.
func (d *draft) addSelectedMetadata(ctx context.Context, of template, tenant *unstructured.Unstructured) {
	for i, metadata := range each(tenant.Object, "spec", "namespaceOptions", "additionalMetadataList") {
		if !hasSelector(metadata) {
			continue
		}
		t := template{item: of.item, name: objectName(of.name, "metadata", fmt.Sprint(i)), prune: true}
		t.add("Converted from namespaceOptions.additionalMetadataList[%d] of Tenant %s of Capsule.", i, tenant.GetName())
		t.selectSpace(of.name)
		required, err := requirements(metadata["namespaceSelector"])
		if err != nil {
			t.undecided("namespaceOptions.additionalMetadataList[%d]: the namespaceSelector is invalid", i)
		}
		t.require(required...)
		t.addTenantMetadata(metadata, tenant)
		d.addTemplate(ctx, t)
	}
}

// addTenantMetadata makes a template set labels and annotations with Capsule's variables.
func (t *template) addTenantMetadata(metadata map[string]any, tenant *unstructured.Unstructured) {
	t.convertMetadata(metadata, "namespaceOptions: ", capsuleVariable, tenantVariable(tenant.GetName()))
}

// addServiceOptions adds a ResourceQuota for the types of Services that a tenant may not have.
func (t *template) addServiceOptions(tenant *unstructured.Unstructured) {
	hard := map[string]any{}
	allowed := at[map[string]any](tenant.Object, "spec", "serviceOptions", "allowedServices")
	for option, resource := range map[string]corev1.ResourceName{
		"nodePort": corev1.ResourceServicesNodePorts, "loadBalancer": corev1.ResourceServicesLoadBalancers,
	} {
		if allowed[option] == false {
			hard[string(resource)] = "0"
		}
	}
	if allowed["nodePort"] == false && allowed["loadBalancer"] != false {
		delete(hard, string(corev1.ResourceServicesNodePorts)) // it counts Services of type LoadBalancer, too
		t.need(&t.notes, "serviceOptions.allowedServices.nodePort: a ResourceQuota for services.nodeports also denies "+
			"Services of type LoadBalancer, unless they set allocateLoadBalancerNodePorts: false: %s", useAdmissionPolicy)
	}
	if len(hard) > 0 {
		t.addCapsuleObject(newObject("v1", "ResourceQuota", map[string]any{"name": objectName(t.name, "services")}, "spec",
			map[string]any{"hard": hard}), tenant.GetName())
	}
	if allowed["externalName"] == false {
		t.need(&t.notes, "serviceOptions.allowedServices.externalName: %s", useAdmissionPolicy)
	}
}

// tenantVariable returns the values of Capsule's variables. Tenant is "" if it is not known.
func tenantVariable(tenant string) func(match []string) (part, error) {
	return func(match []string) (part, error) {
		switch {
		case match[1] == "namespace":
			return namespaceName, nil
		case match[1] == "tenant.name" && tenant != "":
			return part{text: tenant}, nil
		}
		return part{}, fmt.Errorf("the value of %s is unknown", match[0])
	}
}

// addTenantLists adds the network policies, limits and quotas of a tenant. A quota for the whole tenant becomes that of
// the policy space.
func (t *template) addTenantLists(s *space, tenant *unstructured.Unstructured) {
	add := func(apiVersion, kind string, i int, spec map[string]any) {
		t.addCapsuleObject(newObject(apiVersion, kind,
			map[string]any{"name": fmt.Sprintf("%s-%d", t.name, i)}, "spec", spec), tenant.GetName())
	}
	for i, spec := range each(tenant.Object, "spec", "networkPolicies", "items") {
		add("networking.k8s.io/v1", "NetworkPolicy", i, spec)
	}
	for i, spec := range each(tenant.Object, "spec", "limitRanges", "items") {
		add("v1", "LimitRange", i, spec)
	}
	scope := cmp.Or(at[string](tenant.Object, "spec", "resourceQuotas", "scope"), "Tenant")
	for i, spec := range each(tenant.Object, "spec", "resourceQuotas", "items") {
		switch {
		case scope == "Namespace":
			add("v1", "ResourceQuota", i, spec)
		case spec["scopes"] != nil || spec["scopeSelector"] != nil:
			s.lose(&s.notes, "resourceQuotas.items[%d]: quotas of policy spaces have no scopes", i)
		default:
			s.quotas = append(s.quotas, at[map[string]any](spec, "hard"))
		}
	}
}

// addOwners adds a RoleBinding for each ClusterRole that owners of a tenant have.
func (t *template) addOwners(tenant *unstructured.Unstructured) {
	const deleter = "capsule-namespace-deleter"
	subjects := map[string][]any{}
	for _, owner := range each(tenant.Object, "spec", "owners") {
		roles := texts(owner, "clusterRoles")
		if owner["clusterRoles"] == nil {
			roles = []string{"admin", deleter}
		}
		for _, role := range roles {
			subjects[role] = append(subjects[role], ownerSubject(owner))
		}
	}
	for _, role := range slices.Sorted(maps.Keys(subjects)) {
		if role == deleter {
			t.lose(&t.notes, "owners: ClusterRole %s, by which owners delete their namespaces, is removed with Capsule", deleter)
			continue
		}
		t.addBinding(objectName(t.name, "owners", role), role, subjects[role], tenant.GetName())
	}
}

// ownerSubject returns the subject of an owner. The name of a ServiceAccount is that of its user.
func ownerSubject(owner map[string]any) map[string]any {
	kind, name := at[string](owner, "kind"), at[string](owner, "name")
	parts := strings.Split(name, ":")
	if kind == rbacv1.ServiceAccountKind && len(parts) == 4 {
		return map[string]any{"kind": kind, "namespace": parts[2], "name": parts[3]}
	}
	return map[string]any{"apiGroup": rbacv1.GroupName, "kind": kind, "name": name}
}

func (t *template) addTenantBindings(tenant *unstructured.Unstructured) {
	for i, binding := range each(tenant.Object, "spec", "additionalRoleBindings") {
		role := at[string](binding, "clusterRoleName")
		t.addBinding(objectName(t.name, fmt.Sprint(i), role), role, at[[]any](binding, "subjects"), tenant.GetName())
	}
}

func (t *template) addBinding(name, role string, subjects []any, tenant string) {
	object := newObject(rbacv1.SchemeGroupVersion.String(), "RoleBinding", map[string]any{"name": name}, "subjects", subjects)
	object["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": role}
	t.addCapsuleObject(object, tenant)
}

// capsuleVariable matches the variables of Capsule.
var capsuleVariable = regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}|\{\{`)

// addCapsuleObject adds an object with Capsule's variables. Tenant is "" if it is not known.
func (t *template) addCapsuleObject(object map[string]any, tenant string) {
	o := clean(&unstructured.Unstructured{Object: object})
	err := o.replace(capsuleVariable, tenantVariable(tenant))
	if err == nil && o.object["kind"] == "Secret" {
		err = errSecret
	}
	if err != nil {
		t.fail(&t.notes, nameOf(object), err)
		return
	}
	o.relabel(func(key string, _ bool) string {
		if key == capsuleGroup+"/tenant" {
			return v1alpha1.PolicySpaceLabel
		}
		return ""
	})
	t.objects = append(t.objects, o)
}

const useAdmissionPolicy = "use a ValidatingAdmissionPolicy"

// nodeSelectorAnnotation is read by the admission plugin PodNodeSelector. Capsule sets it, too.
const nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"

// tenantOptions are options of tenants without a counterpart, with what to use instead.
var tenantOptions = map[string]string{
	"additionalMetadata":     "",
	"containerRegistries":    useAdmissionPolicy,
	"cordoned":               "",
	"deviceClasses":          useAdmissionPolicy,
	"gatewayOptions":         useAdmissionPolicy,
	"imagePullPolicies":      useAdmissionPolicy,
	"ingressOptions":         useAdmissionPolicy,
	"permissions":            "",
	"podOptions":             "",
	"priorityClasses":        "limit them with a ResourceQuota and its scopeSelector",
	"rules":                  "",
	"runtimeClasses":         useAdmissionPolicy,
	"storageClasses":         "a ResourceQuota limits NAME.storageclass.storage.k8s.io/requests.storage",
	"additionalMetadataList": "",
}

// namespaceOptions are those options of the namespaces of tenants.
var namespaceOptions = map[string]string{
	"forbiddenLabels":      "protect the labels with a ClusterProtectedAttribute",
	"forbiddenAnnotations": "protect the annotations with a ClusterProtectedAttribute",
	"managedMetadataOnly":  "protect labels with a ClusterProtectedAttribute",
	"requiredMetadata":     "add spec.selfService.labels to the policy space",
}

// convertedOptions are the options of tenants that are converted, and those of their namespaces.
var convertedOptions = []string{
	"owners", "networkPolicies", "limitRanges", "resourceQuotas", "additionalRoleBindings", "namespaceOptions",
	"serviceOptions", "nodeSelector", "forceTenantPrefix", "preventDeletion", "namespaceOptions.quota",
	"namespaceOptions.additionalMetadata", "namespaceOptions.additionalMetadataList",
}

// addTenantOptions adds the other options of a tenant, and reports those without a counterpart.
func (s *space) addTenantOptions(t *template, tenant *unstructured.Unstructured) {
	spec := at[map[string]any](tenant.Object, "spec")
	if at[bool](spec, "forceTenantPrefix") {
		s.namePattern = tenant.GetName() + "-*"
	}
	if at[bool](spec, "preventDeletion") {
		s.converted++
		s.add("preventDeletion: a policy space with namespaces cannot be deleted. To protect the namespaces, annotate them "+
			"with %s=true.", v1alpha1.DeletionProtectionAnnotation)
	}
	if selector := at[map[string]any](spec, "nodeSelector"); len(selector) > 0 {
		var terms []string
		for _, key := range slices.Sorted(maps.Keys(selector)) {
			terms = append(terms, fmt.Sprintf("%s=%v", key, selector[key]))
		}
		t.addMetadata("annotations", nodeSelectorAnnotation, strings.Join(terms, ","))
		t.need(&t.notes, "nodeSelector: enable the admission plugin PodNodeSelector, which reads the annotation %s",
			nodeSelectorAnnotation)
	}
	for _, field := range slices.Sorted(maps.Keys(at[map[string]any](spec, "serviceOptions"))) {
		if field != "allowedServices" {
			s.lose(&s.notes, "serviceOptions.%s: it has no counterpart", field)
		}
	}
	for _, options := range []struct {
		prefix string
		fields map[string]any
		known  map[string]string
	}{
		{"", spec, tenantOptions},
		{"namespaceOptions.", at[map[string]any](spec, "namespaceOptions"), namespaceOptions},
	} {
		for _, field := range slices.Sorted(maps.Keys(options.fields)) {
			instead, isKnown := options.known[field]
			isSet := options.fields[field] != nil && options.fields[field] != false
			switch name := options.prefix + field; {
			case !isSet || slices.Contains(convertedOptions, name):
			case !isKnown:
				s.lose(&s.notes, "%s: it is not known to this command", name)
			case instead != "":
				s.need(&s.notes, "%s: %s", name, instead)
			default:
				s.lose(&s.notes, "%s: it has no counterpart", name)
			}
		}
	}
}

// tenantsOf returns the tenants that a GlobalTenantResource selects. Its selector selects all if it is empty.
func tenantsOf(source *unstructured.Unstructured, tenants []*unstructured.Unstructured) []*unstructured.Unstructured {
	required, err := requirements(at[any](source.Object, "spec", "tenantSelector"))
	if err != nil {
		return nil
	}
	var s selector
	s.require(required...)
	parsed, err := metav1.LabelSelectorAsSelector(&s.LabelSelector)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(tenants), func(t *unstructured.Unstructured) bool {
		return !parsed.Matches(labels.Set(t.GetLabels()))
	})
}

// addTenantResources adds a template for each part of a GlobalTenantResource or TenantResource, for some tenants.
func (d *draft) addTenantResources(
	ctx context.Context, source *unstructured.Unstructured, tenants []*unstructured.Unstructured,
) {
	parts := each(source.Object, "spec", "resources")
	for i, section := range parts {
		t := template{
			item: d.item("%s/%s", strings.ToLower(source.GetKind()), source.GetName()),
			name: objectName(source.GetName()),
		}
		if len(parts) > 1 {
			t.name = objectName(source.GetName(), fmt.Sprint(i))
		}
		t.add("Converted from resources[%d] of %s %s of Capsule.", i, source.GetKind(), source.GetName())
		tenant := t.selectTenants(tenants)
		required, err := requirements(section["namespaceSelector"])
		if err != nil {
			t.undecided("namespaceSelector: it is invalid")
		}
		t.require(required...)
		prune, isSet := at[any](source.Object, "spec", "pruningOnDelete").(bool)
		t.prune = prune || !isSet
		for _, field := range []string{"generators", "context"} {
			if section[field] != nil {
				t.need(&t.notes, "%s: templates cannot compute objects: write them into the template", field)
			}
		}
		for _, item := range each(section, "namespacedItems") {
			t.addNamespacedItem(item)
		}
		if section["additionalMetadata"] != nil {
			t.need(&t.notes, "additionalMetadata: write the labels and annotations into the objects")
		}
		for _, object := range each(section, "rawItems") {
			t.addCapsuleObject(object, tenant)
		}
		d.addTemplate(ctx, t)
	}
}

// addNamespacedItem makes a template copy an object of namespacedItems, if the item names it.
func (t *template) addNamespacedItem(item map[string]any) {
	kind, namespace := at[string](item, "kind"), at[string](item, "namespace")
	err := t.addSource(v1alpha1.Source{
		APIVersion: at[string](item, "apiVersion"), Kind: kind, Namespace: namespace, Name: at[string](item, "name"),
	})
	if err != nil {
		t.fail(&t.notes, fmt.Sprintf("namespacedItems: %s of namespace %s", kind, namespace), err)
	}
}

// selectTenants makes a template select the namespaces of tenants. It returns the name of the tenant if there is one.
func (t *template) selectTenants(tenants []*unstructured.Unstructured) string {
	var spaces []string
	for _, tenant := range tenants {
		spaces = append(spaces, spaceName(tenant.GetName()))
	}
	switch len(spaces) {
	case 0:
		t.undecided("none of the Tenants that were read belongs to it")
		return ""
	case 1:
		t.selectSpace(spaces[0])
		return tenants[0].GetName()
	}
	slices.Sort(spaces)
	t.require(in(v1alpha1.PolicySpaceLabel, spaces...))
	return ""
}
