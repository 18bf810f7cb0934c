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
	// The names of the templates that addMetadataList adds begin with the name of this one, and must not be too long.
	t := template{item: s.item, name: objectName(name[:min(len(name), maxName-len("-metadata-000"))])}
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
	d.addMetadataList(ctx, t, tenant)
}

// addNamespaceOptions adds the labels and annotations that a tenant gives all its namespaces, and the number of
// namespaces that it may have.
func (t *template) addNamespaceOptions(s *space, tenant *unstructured.Unstructured) {
	options := at[map[string]any](tenant.Object, "spec", "namespaceOptions")
	if limit := options["quota"]; limit != nil {
		s.quotas = append(s.quotas, map[string]any{string(quota.Namespaces): limit})
	}
	t.addTenantMetadata(at[map[string]any](options, "additionalMetadata"), tenant)
}

// addMetadataList adds a template for each item of additionalMetadataList. The first item with a key wins in Capsule,
// and the template with the last name in nstpl. So the numbers in the names count down.
func (d *draft) addMetadataList(ctx context.Context, of template, tenant *unstructured.Unstructured) {
	list := each(tenant.Object, "spec", "namespaceOptions", "additionalMetadataList")
	digits := len(fmt.Sprint(len(list)))
	for i, metadata := range list {
		t := template{item: of.item, prune: true, name: fmt.Sprintf("%s-metadata-%0*d", of.name, digits, len(list)-i)}
		t.add("Converted from namespaceOptions.additionalMetadataList[%d] of Tenant %s of Capsule.", i, tenant.GetName())
		required, err := requirements(metadata["namespaceSelector"])
		if err != nil {
			t.undecided("namespaceOptions.additionalMetadataList[%d]: the namespaceSelector is invalid", i)
		}
		t.require(append(required, of.MatchExpressions...)...)
		t.addTenantMetadata(metadata, tenant)
		t.yield(of.metadata, "additionalMetadata or nodeSelector")
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

// addOwners adds a RoleBinding for each ClusterRole that owners of a tenant have. The status has all owners: those of
// TenantOwners, of the configuration and promoted ServiceAccounts, too. Tenants in files may have no status.
func (t *template) addOwners(tenant *unstructured.Unstructured) {
	owners, resolved := each(tenant.Object, "spec", "owners"), each(tenant.Object, "status", "owners")
	for _, owner := range owners {
		name := fmt.Sprint("owners: ", owner["kind"], " ", owner["name"], ": ")
		t.nameFields(&t.notes, name, owner, capsuleOptions, "kind", "name", "clusterRoles")
	}
	if len(resolved) > 0 {
		owners = resolved
	} else {
		t.nameFields(&t.notes, "permissions.", at[map[string]any](tenant.Object, "spec", "permissions"), capsuleOptions,
			"allowOwnerPromotion")
	}
	subjects := map[string][]any{}
	for _, owner := range owners {
		roles := texts(owner, "clusterRoles")
		if owner["clusterRoles"] == nil {
			roles = []string{"admin", "capsule-namespace-deleter"}
		}
		for _, role := range roles {
			subjects[role] = append(subjects[role], ownerSubject(owner))
		}
	}
	for _, role := range slices.Sorted(maps.Keys(subjects)) {
		if strings.HasPrefix(role, "capsule-namespace-") {
			t.lose(&t.notes, "owners: ClusterRole %s is removed with Capsule", role)
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
		t.nameFields(&t.notes, fmt.Sprintf("additionalRoleBindings[%d].", i), binding, capsuleOptions, "clusterRoleName",
			"subjects")
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

// capsuleOptions are options of tenants, of their owners and of the resources in them that are not converted, with what
// to do instead. They have no counterpart if that is "".
var capsuleOptions = map[string]string{
	"additionalMetadata":     "write the labels and annotations into the objects",
	"additionalMetadataList": "",
	"annotations":            "write them into the RoleBinding",
	"containerRegistries":    useAdmissionPolicy,
	"context":                "templates cannot compute values: write them into the template",
	"cordoned":               "",
	"dependsOn":              "",
	"deviceClasses":          useAdmissionPolicy,
	"gatewayOptions":         useAdmissionPolicy,
	"generators":             "templates cannot compute objects: write them into the template",
	"imagePullPolicies":      useAdmissionPolicy,
	"ingressOptions":         useAdmissionPolicy,
	"labels":                 "write them into the RoleBinding",
	"matchOwners":            "read the Tenant from the cluster, where its status has these owners",
	"podOptions":             "",
	"priorityClasses":        "limit them with a ResourceQuota and its scopeSelector",
	"proxySettings":          "",
	"rules":                  "",
	"runtimeClasses":         useAdmissionPolicy,
	"serviceAccount":         "the operator creates the objects with its own rights, not with those of this ServiceAccount",
	"storageClasses":         "a ResourceQuota limits NAME.storageclass.storage.k8s.io/requests.storage",
}

// namespaceOptions are those options of the namespaces of tenants.
var namespaceOptions = map[string]string{
	"forbiddenLabels":      "protect the labels with a ClusterProtectedAttribute",
	"forbiddenAnnotations": "protect the annotations with a ClusterProtectedAttribute",
	"managedMetadataOnly":  "protect labels with a ClusterProtectedAttribute",
	"requiredMetadata":     "add spec.selfService.labels to the policy space",
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
	for _, field := range unlisted(at[map[string]any](spec, "serviceOptions"), "allowedServices") {
		s.lose(&s.notes, "serviceOptions.%s: it has no counterpart", field)
	}
	s.nameFields(&s.notes, "", spec, capsuleOptions, "owners", "networkPolicies", "limitRanges", "resourceQuotas",
		"additionalRoleBindings", "namespaceOptions", "serviceOptions", "nodeSelector", "forceTenantPrefix",
		"preventDeletion", "permissions")
	s.nameFields(&s.notes, "namespaceOptions.", at[map[string]any](spec, "namespaceOptions"), namespaceOptions, "quota",
		"additionalMetadata", "additionalMetadataList")
	for _, key := range slices.Sorted(maps.Keys(tenant.GetAnnotations())) {
		if strings.HasPrefix(key, "quota.resources."+capsuleGroup+"/") {
			s.need(&s.notes, "annotation %s: limit the objects by count/RESOURCE.GROUP in spec.quota of the policy space", key)
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
	spec, parts := at[map[string]any](source.Object, "spec"), each(source.Object, "spec", "resources")
	from := d.item("%s/%s", strings.ToLower(source.GetKind()), source.GetName())
	from.nameFields(nil, "", spec, capsuleOptions, "resources", "tenantSelector", "pruningOnDelete", "resyncPeriod",
		"settings", "scope", "cordoned")
	if kindOf(source) == capsuleGlobal {
		from.need(nil, "tenantSelector: the templates select the tenants of today: add those that are created later")
	}
	for i, section := range parts {
		t := template{item: from, name: objectName(source.GetName())}
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
		if scope := at[string](spec, "scope"); scope != "" && scope != "Namespace" {
			t.undecided("scope %s: each object is created in a namespace of its own", scope)
		}
		if at[bool](spec, "cordoned") {
			t.undecided("cordoned: it is paused")
		}
		prune, isSet := spec["pruningOnDelete"].(bool)
		t.prune = prune || !isSet
		t.nameFields(&t.notes, "", section, capsuleOptions, "namespaceSelector", "namespacedItems", "rawItems")
		for _, item := range each(section, "namespacedItems") {
			t.addNamespacedItem(item)
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
