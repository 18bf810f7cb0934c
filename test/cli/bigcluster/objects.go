package bigcluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

const (
	perSpace  = 5  // namespaces in a policy space
	perRegion = 50 // policy spaces in a region
	teams     = 900
	root      = "corp"
	tree      = "corp"
)

var created = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, UID: types.UID("uid-of-" + name), ResourceVersion: "1000", Generation: 1,
		CreationTimestamp: created,
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &created,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},` +
				`"f:policy.nstpl.dev/tree":{}}},"f:spec":{"f:namespaces":{"f:labelSelector":{}},"f:templates":{}}}`),
		}},
	}
}

func spaceOf(i int) string  { return fmt.Sprintf("space-%05d", i/perSpace) }
func regionOf(i int) string { return fmt.Sprintf("region-%03d", i/perSpace/perRegion) }

// spaces returns the policy spaces of a tree with so many namespaces.
func spaces(namespaces int) []*v1alpha1.PolicySpace {
	newSpace := func(name, parent string) *v1alpha1.PolicySpace {
		space := &v1alpha1.PolicySpace{ObjectMeta: meta(name)}
		space.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PolicySpace"))
		space.Labels = map[string]string{v1alpha1.TreeLabel: tree}
		space.Spec.Parent = parent
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: limits("1000")}
		space.Status.Used = limits("10")
		return space
	}
	all := []*v1alpha1.PolicySpace{newSpace(root, "")}
	for i := 0; i < namespaces; i += perSpace {
		if i%(perSpace*perRegion) == 0 {
			all = append(all, newSpace(regionOf(i), root))
		}
		all = append(all, newSpace(spaceOf(i), regionOf(i)))
	}
	return all
}

func limits(pods string) corev1.ResourceList {
	return corev1.ResourceList{
		"pods": resource.MustParse(pods), "requests.cpu": resource.MustParse("8"),
		"limits.memory": resource.MustParse("16Gi"),
	}
}

// newNamespaces returns namespaces in the policy spaces of a tree.
func newNamespaces(number int) []*corev1.Namespace {
	all := make([]*corev1.Namespace, number)
	for i := range all {
		ns := &corev1.Namespace{ObjectMeta: meta(fmt.Sprintf("team-%05d", i))}
		ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		ns.Labels = map[string]string{
			corev1.LabelMetadataName: ns.Name, v1alpha1.PolicySpaceLabel: spaceOf(i),
			hierarchy.DepthLabel(spaceOf(i)): "1", hierarchy.DepthLabel(regionOf(i)): "2",
			hierarchy.DepthLabel(root): "3", "team": fmt.Sprintf("t%d", i%teams), v1alpha1.TreeLabel: tree,
		}
		ns.Annotations = map[string]string{
			v1alpha1.CreatorAnnotation: "jane@example.com", v1alpha1.InTreeAnnotation: "true",
		}
		ns.Status.Phase = corev1.NamespaceActive
		ns.Status.Conditions = []corev1.NamespaceCondition{{
			Type: "Populated", Status: corev1.ConditionTrue, Reason: "Populated", LastTransitionTime: created,
			Message: "10 objects of 7 templates are as declared",
		}}
		all[i] = ns
	}
	return all
}

// templates returns one template for each policy space, one for most namespaces, and one for each team.
func templates(spaces []*v1alpha1.PolicySpace, namespaces []*corev1.Namespace) []*v1alpha1.NamespaceTemplate {
	var all []*v1alpha1.NamespaceTemplate
	add := func(name string, selector metav1.LabelSelector, objects ...runtime.Object) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: meta(name)}
		template.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
		template.Spec.Namespaces.LabelSelector = &selector
		for _, object := range objects {
			data, _ := json.Marshal(object) // of types of Kubernetes, which are always valid
			template.Spec.Templates = append(template.Spec.Templates, runtime.RawExtension{Raw: data})
		}
		template.Spec.DriftPolicy, template.Spec.FailurePolicy = v1alpha1.DriftCorrect, v1alpha1.FailureFail
		template.Status = v1alpha1.NamespaceTemplateStatus{
			ObservedGeneration: 1,
			Conditions: []metav1.Condition{
				{
					Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionTrue, Reason: "Accepted",
					LastTransitionTime: created,
				},
				{
					Type: v1alpha1.TemplatePopulated, Status: metav1.ConditionTrue, Reason: "Populated",
					LastTransitionTime: created,
				},
			},
			Kinds: []v1alpha1.GroupKind{
				{Group: rbacv1.GroupName, Kind: "Role"}, {Group: rbacv1.GroupName, Kind: "RoleBinding"},
				{Kind: "ResourceQuota"}, {Kind: "ConfigMap"},
			},
			Revisions: []v1alpha1.TemplateRevision{{
				Name: name + "-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete, StartTime: created,
			}},
		}
		all = append(all, template)
		return template
	}
	inTree := func(space string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: hierarchy.DepthLabel(space), Operator: metav1.LabelSelectorOpExists,
		}}}
	}
	for _, space := range spaces {
		template := add(space.Name, inTree(space.Name), newBinding(space.Name+".viewers"))
		template.Labels = map[string]string{v1alpha1.TreeLabel: tree}
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		if space.Name == root {
			template.Spec.Authoritative = template.Status.Kinds[:3]
		}
	}
	for _, ns := range namespaces[:7*len(namespaces)/10] {
		selector := inTree(root)
		selector.MatchLabels = map[string]string{corev1.LabelMetadataName: ns.Name}
		template := add(ns.Name, selector, newRole("deployer"), newBinding(ns.Name+".deployers"), newQuota("budget"))
		template.Labels = map[string]string{v1alpha1.TreeLabel: tree}
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	}
	for i := range min(teams, len(namespaces)) {
		template := add(fmt.Sprintf("zz-%04d", i), metav1.LabelSelector{
			MatchLabels: map[string]string{"team": fmt.Sprintf("t%d", i)},
		}, newRole("auditor"), newBinding("auditors"), newConfig("settings"), newConfig("trust"))
		if i%9 == 0 {
			template.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: "true"}
		}
	}
	return all
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

func newRole(name string) *rbacv1.Role {
	return &rbacv1.Role{
		TypeMeta: typeMeta("rbac.authorization.k8s.io/v1", "Role"), ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "patch"}},
		},
	}
}

func newBinding(name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta: typeMeta("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "$(NAMESPACE)@example.com"},
		},
	}
}

func newQuota(name string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		TypeMeta: typeMeta("v1", "ResourceQuota"), ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ResourceQuotaSpec{Hard: limits("20")},
	}
}

func newConfig(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: typeMeta("v1", "ConfigMap"), ObjectMeta: metav1.ObjectMeta{Name: name},
		Data: map[string]string{"config.yaml": strings.Repeat("key: value of $(NAMESPACE)\n", 4)},
	}
}

// populated returns the objects that the operator would have created, by their kinds.
func populated(
	templates []*v1alpha1.NamespaceTemplate, namespaces []*corev1.Namespace,
) (map[string][]json.RawMessage, error) {
	index, cache := match.NewIndex(templates...), render.NewCache()
	byKind := map[string][]json.RawMessage{}
	for _, ns := range namespaces {
		declared := populate.Declare(cache, nil, ns, index.Match(ns))
		if len(declared.Broken) > 0 {
			return nil, declared.Broken[0].Err
		}
		for i := range declared.Objects {
			object, err := stored(&declared.Objects[i])
			if err != nil {
				return nil, err
			}
			kind := declared.Objects[i].GetKind()
			byKind[kind] = append(byKind[kind], object)
		}
	}
	return byKind, nil
}

// stored returns an object as the API server stores it after an apply by the operator.
func stored(declared *populate.Object) (json.RawMessage, error) {
	body, err := populate.Body(declared, nil)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	owned := owned(object)
	delete(owned, "f:apiVersion")
	delete(owned, "f:kind")
	fields, _ := owned["f:metadata"].(map[string]any)
	delete(fields, "f:name")
	delete(fields, "f:namespace")
	metadata, _ := object["metadata"].(map[string]any)
	metadata["uid"] = fmt.Sprintf("%s-%s-%s", declared.GetKind(), declared.GetNamespace(), declared.GetName())
	metadata["resourceVersion"] = "1000"
	metadata["creationTimestamp"] = created
	metadata["managedFields"] = []any{map[string]any{
		"manager": v1alpha1.FieldManager, "operation": "Apply", "apiVersion": declared.GetAPIVersion(), "time": created,
		"fieldsType": "FieldsV1", "fieldsV1": owned,
	}}
	return json.Marshal(object)
}

// owned returns the fields of a value in the notation of managedFields.
func owned(value map[string]any) map[string]any {
	fields := map[string]any{}
	for key, inside := range value {
		fields["f:"+key] = map[string]any{}
		if inside, ok := inside.(map[string]any); ok && len(inside) > 0 {
			fields["f:"+key] = owned(inside)
		}
	}
	return fields
}
