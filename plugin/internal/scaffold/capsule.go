package scaffold

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

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

func readCapsule(ctx context.Context, r reader) ([]*unstructured.Unstructured, error) {
	return r.all(ctx, capsuleTenant, capsuleGlobal, capsuleLocal)
}

// fromCapsule converts Tenants to PolicySpaces with a template each, and the resources that Capsule distributes in
// tenants to further templates.
func fromCapsule(ctx context.Context, objects []*unstructured.Unstructured) *draft {
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
	s := space{name: name}
	s.add("Converted from Tenant %s of Capsule.", tenant.GetName())
	s.add("Namespaces are deleted with their Tenant. After you stopped Capsule, and before you delete the Tenant, remove its " +
		"ownerReferences from the namespaces.")
	s.add("To let users create namespaces in it, grant them the verb use on policyspaces/%s.", name)
	for _, namespace := range texts(tenant.Object, "status", "namespaces") {
		if isName(namespace) {
			s.namespaces = append(s.namespaces, namespace)
		}
	}
	t := template{name: name}
	t.add("Converted from Tenant %s of Capsule.", tenant.GetName())
	t.selectSpace(name)
	t.prune = true // a namespace that leaves the tenant must not keep the access of its owners
	d.addTenantLists(&t, &s, tenant)
	d.addOwners(&t, tenant)
	d.addTenantBindings(&t, tenant)
	d.addNamespaceOptions(&t, &s, tenant)
	d.loseTenantOptions(&s, tenant)
	d.addSpace(s)
	if len(t.objects)+len(t.labels)+len(t.annotations) > 0 {
		d.addTemplate(ctx, t)
	}
}

// addNamespaceOptions adds the labels and annotations that a tenant gives its namespaces, and the number of namespaces
// that it may have.
func (d *draft) addNamespaceOptions(t *template, s *space, tenant *unstructured.Unstructured) {
	options := at[map[string]any](tenant.Object, "spec", "namespaceOptions")
	if limit := options["quota"]; limit != nil {
		s.quotas = append(s.quotas, map[string]any{string(quota.Namespaces): limit})
	}
	add := func(metadata map[string]any) {
		for _, field := range []string{"labels", "annotations"} {
			for key, value := range at[map[string]any](metadata, field) {
				text, err := substitute(fmt.Sprint(value), capsuleVariable, tenantVariable(tenant.GetName()))
				if err != nil {
					d.lose(&t.notes, "namespacetemplate/"+t.name, "namespaceOptions: %s: %s", key, sentence(err))
					continue
				}
				t.addMetadata(field == "labels", key, text)
			}
		}
	}
	add(at[map[string]any](options, "additionalMetadata"))
	for _, metadata := range each(options, "additionalMetadataList") {
		if len(at[map[string]any](metadata, "namespaceSelector")) > 0 {
			d.lose(&t.notes, "namespacetemplate/"+t.name, "namespaceOptions.additionalMetadataList with a namespaceSelector: "+
				"write it into namespaceMetadata of an overlay")
			continue
		}
		add(metadata)
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
func (d *draft) addTenantLists(t *template, s *space, tenant *unstructured.Unstructured) {
	add := func(apiVersion, kind string, i int, spec map[string]any) {
		d.addCapsuleObject(t, newObject(apiVersion, kind,
			map[string]any{"name": fmt.Sprintf("%s-%d", t.name, i)}, "spec", spec), t.name, tenant.GetName())
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
			d.lose(&s.notes, "policyspace/"+s.name, "resourceQuotas.items[%d]: quotas of policy spaces have no scopes", i)
		default:
			s.quotas = append(s.quotas, at[map[string]any](spec, "hard"))
		}
	}
}

// addOwners adds a RoleBinding for each ClusterRole that owners of a tenant have.
func (d *draft) addOwners(t *template, tenant *unstructured.Unstructured) {
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
			d.lose(&t.notes, "namespacetemplate/"+t.name, "ClusterRole %s, by which owners delete their namespaces, "+
				"is removed with Capsule", deleter)
			continue
		}
		d.addBinding(t, objectName(t.name, "owners", role), role, subjects[role], tenant.GetName())
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

func (d *draft) addTenantBindings(t *template, tenant *unstructured.Unstructured) {
	for i, binding := range each(tenant.Object, "spec", "additionalRoleBindings") {
		role := at[string](binding, "clusterRoleName")
		d.addBinding(t, objectName(t.name, fmt.Sprint(i), role), role, at[[]any](binding, "subjects"), tenant.GetName())
	}
}

func (d *draft) addBinding(t *template, name, role string, subjects []any, tenant string) {
	object := newObject(rbacv1.SchemeGroupVersion.String(), "RoleBinding", map[string]any{"name": name}, "subjects", subjects)
	object["roleRef"] = map[string]any{"apiGroup": rbacv1.GroupName, "kind": "ClusterRole", "name": role}
	d.addCapsuleObject(t, object, t.name, tenant)
}

// capsuleVariable matches the variables of Capsule.
var capsuleVariable = regexp.MustCompile(`\{\{\s*([^{}]*?)\s*\}\}|\{\{`)

// addCapsuleObject adds an object with Capsule's variables. Tenant is "" if it is not known.
func (d *draft) addCapsuleObject(t *template, object map[string]any, name, tenant string) {
	o := clean(&unstructured.Unstructured{Object: object})
	err := o.replace(capsuleVariable, tenantVariable(tenant))
	if err == nil && o.object["kind"] == "Secret" {
		err = fmt.Errorf("the values of Secrets must not get into files")
	}
	if err != nil {
		d.lose(&t.notes, "namespacetemplate/"+name, "%s: %s", nameOf(object), sentence(err))
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

// tenantOptions are options of tenants without a counterpart, with what to use instead.
var tenantOptions = map[string]string{
	"additionalMetadata":  "",
	"containerRegistries": "use a ValidatingAdmissionPolicy",
	"cordoned":            "",
	"deviceClasses":       "use a ValidatingAdmissionPolicy",
	"forceTenantPrefix":   "set spec.selfService.namePattern of the policy space",
	"gatewayOptions":      "use a ValidatingAdmissionPolicy",
	"imagePullPolicies":   "use a ValidatingAdmissionPolicy",
	"ingressOptions":      "use a ValidatingAdmissionPolicy",
	"nodeSelector":        "use the admission plugin PodNodeSelector",
	"permissions":         "",
	"podOptions":          "",
	"preventDeletion": "a policy space with namespaces cannot be deleted; to protect the namespaces, annotate them with " +
		v1alpha1.DeletionProtectionAnnotation + "=true",
	"priorityClasses":        "limit them with a ResourceQuota and its scopeSelector",
	"rules":                  "",
	"runtimeClasses":         "use a ValidatingAdmissionPolicy",
	"serviceOptions":         "a ResourceQuota limits services.nodeports and services.loadbalancers",
	"storageClasses":         "a ResourceQuota limits NAME.storageclass.storage.k8s.io/requests.storage",
	"additionalMetadataList": "",
}

// namespaceOptions are those options of the namespaces of tenants.
var namespaceOptions = map[string]string{
	"forbiddenLabels":      "protect the labels with a ClusterProtectedAttribute",
	"forbiddenAnnotations": "protect the annotations with a ClusterProtectedAttribute",
	"managedMetadataOnly":  "protect labels with a ClusterProtectedAttribute",
	"requiredMetadata":     "set spec.selfService.labels of the policy space",
}

func (d *draft) loseTenantOptions(s *space, tenant *unstructured.Unstructured) {
	for _, options := range []struct {
		prefix string
		fields map[string]any
		known  map[string]string
	}{
		{"", at[map[string]any](tenant.Object, "spec"), tenantOptions},
		{"namespaceOptions.", at[map[string]any](tenant.Object, "spec", "namespaceOptions"), namespaceOptions},
	} {
		for _, field := range slices.Sorted(maps.Keys(options.fields)) {
			instead, isKnown := options.known[field]
			isSet := options.fields[field] != nil && options.fields[field] != false
			isConverted := slices.Contains([]string{"owners", "networkPolicies", "limitRanges", "resourceQuotas",
				"additionalRoleBindings", "namespaceOptions"}, field) ||
				options.prefix != "" && slices.Contains([]string{"quota", "additionalMetadata", "additionalMetadataList"}, field)
			if isSet && !isConverted {
				instead = cmp.Or(instead, "it has no counterpart")
				if !isKnown {
					instead = "it is not known to this command"
				}
				d.lose(&s.notes, "policyspace/"+s.name, "%s%s: %s", options.prefix, field, instead)
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
		t := template{name: objectName(source.GetName())}
		if len(parts) > 1 {
			t.name = objectName(source.GetName(), fmt.Sprint(i))
		}
		where := "namespacetemplate/" + t.name
		t.add("Converted from resources[%d] of %s %s of Capsule.", i, source.GetKind(), source.GetName())
		tenant := d.selectTenants(&t, tenants)
		required, err := requirements(section["namespaceSelector"])
		if err != nil {
			t.incomplete = true
			d.lose(&t.selectorNotes, where, "namespaceSelector: it is invalid")
		}
		t.require(required...)
		prune, isSet := at[any](source.Object, "spec", "pruningOnDelete").(bool)
		t.prune = prune || !isSet
		for _, field := range []string{"generators", "context"} {
			if section[field] != nil {
				d.lose(&t.notes, where, "%s: templates cannot compute objects: write them into the template", field)
			}
		}
		for _, item := range each(section, "namespacedItems") {
			d.addNamespacedItem(&t, item)
		}
		if section["additionalMetadata"] != nil {
			d.lose(&t.notes, where, "additionalMetadata: write the labels and annotations into the objects")
		}
		for _, object := range each(section, "rawItems") {
			d.addCapsuleObject(&t, object, t.name, tenant)
		}
		d.addTemplate(ctx, t)
	}
}

// addNamespacedItem makes a template copy an object of namespacedItems, if the item names it.
func (d *draft) addNamespacedItem(t *template, item map[string]any) {
	kind, namespace := at[string](item, "kind"), at[string](item, "namespace")
	err := t.addSource(v1alpha1.Source{
		APIVersion: at[string](item, "apiVersion"), Kind: kind, Namespace: namespace, Name: at[string](item, "name"),
	})
	if err != nil {
		d.lose(&t.notes, "namespacetemplate/"+t.name, "namespacedItems: %s of namespace %s: %s", kind, namespace,
			sentence(err))
	}
}

// selectTenants makes a template select the namespaces of tenants. It returns the name of the tenant if there is one.
func (d *draft) selectTenants(t *template, tenants []*unstructured.Unstructured) string {
	var spaces []string
	for _, tenant := range tenants {
		spaces = append(spaces, spaceName(tenant.GetName()))
	}
	switch len(spaces) {
	case 0:
		t.incomplete = true
		d.lose(&t.selectorNotes, "namespacetemplate/"+t.name, "none of the Tenants that were read belongs to it")
		return ""
	case 1:
		t.selectSpace(spaces[0])
		return tenants[0].GetName()
	}
	slices.Sort(spaces)
	t.require(in(v1alpha1.PolicySpaceLabel, spaces...))
	return ""
}
