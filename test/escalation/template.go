package escalation

import (
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// template returns a random template of a user with the held rules.
func (g *generator) template(short string, held []rbacv1.PolicyRule) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: g.name(short)},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces:     g.selector(pick(g, SelectLabel, SelectLabel, SelectLabel, TierLabel)),
			DriftPolicy:    pick(g, v1alpha1.DriftCorrect, v1alpha1.DriftReport),
			FailurePolicy:  pick(g, v1alpha1.FailureFail, v1alpha1.FailureIgnore),
			DeletionPolicy: pick(g, v1alpha1.DeletionOrphan, v1alpha1.DeletionDelete),
		}}
	if g.chance(10) {
		template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	}
	var objects []*unstructured.Unstructured
	if grants := (Author{Rules: held}).may("create", rbacv1.GroupName, "roles", ""); grants || g.chance(20) {
		objects = g.grants(held)
	}
	for range g.IntN(3) {
		if o := g.plain(); g.chance(20) ||
			(Author{Rules: held}).may("create", o.GroupVersionKind().Group, resourceOf(o.GetKind()), "") {
			objects = append(objects, o)
		}
	}
	g.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	seen := map[key]bool{}
	for _, o := range objects {
		if id := keyOf(o); !seen[id] {
			seen[id] = true
			template.Spec.Templates = append(template.Spec.Templates, raw(o))
		}
	}
	for i := range max(0, g.IntN(4)-1) {
		template.Spec.Overlays = append(template.Spec.Overlays, g.overlay(fmt.Sprint("o", i), held))
	}
	return template
}

// grants returns Roles and RoleBindings. Most bindings refer to a declared Role.
func (g *generator) grants(held []rbacv1.PolicyRule) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for range 1 + g.IntN(2) {
		name := g.name(pick(g, "worker", "worker", "worker", "viewer", "$(NAMESPACE)", "$(CREATOR)"))
		role := g.role(name, g.rules(held)...)
		g.makeInvalid(role)
		if g.chance(92) {
			objects = append(objects, role)
		}
		binding := g.binding(pick(g, "team", "grant", "b-$(NAMESPACE)"), rbacv1.RoleRef{Kind: "Role", Name: name})
		if g.chance(15) {
			clusterRole := rbacv1.RoleRef{
				APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: pick(g, "view", "edit", "admin", "cluster-admin", "missing"),
			}
			binding.Object["roleRef"] = toAny(clusterRole)
		}
		if g.chance(10) {
			binding.Object["subjects"] = toAny([]rbacv1.Subject{{
				APIGroup: rbacv1.GroupName, Kind: "User", Name: "$(CREATOR)",
			}})
		}
		if g.chance(5) {
			delete(binding.Object, "subjects")
		}
		if g.chance(5) {
			binding.SetAPIVersion("rbac.authorization.k8s.io/v1beta1")
		}
		if g.chance(85) {
			objects = append(objects, binding)
		}
	}
	return objects
}

// rules returns random rules of a Role. Its author holds most of them.
func (g *generator) rules(held []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for range g.IntN(3) {
		rule := held[g.IntN(len(held))]
		if g.chance(15) {
			rule = g.right()
		}
		rules = append(rules, rule)
	}
	return rules
}

// makeInvalid changes some Roles such that the API server or the cluster's policies deny them or omit some of their
// content.
func (g *generator) makeInvalid(role *unstructured.Unstructured) {
	switch g.IntN(24) {
	case 0, 1:
		role.SetAPIVersion("rbac.authorization.k8s.io/" + pick(g, "v1beta1", "v1alpha1", "v2"))
	case 2:
		role.SetAnnotations(map[string]string{"a": strings.Repeat("x", 256*1024-1-g.IntN(400))})
	case 3, 4:
		role.SetLabels(map[string]string{RefuseLabel: "true"})
	case 5, 6:
		delete(role.Object, "rules")
	case 7:
		role.Object["rules"] = nil
	case 8:
		role.SetFinalizers([]string{"example.com/kept"})
	case 9:
		role.SetLabels(map[string]string{"of": "$(CREATOR)"})
	case 10:
		role.SetResourceVersion("1")
	}
}

// overlay returns an overlay that changes the kinds, names or permissions of objects.
func (g *generator) overlay(name string, held []rbacv1.PolicyRule) v1alpha1.Overlay {
	overlay := v1alpha1.Overlay{Name: name, Namespaces: g.selector(pick(g, SelectLabel, TierLabel))}
	role := &v1alpha1.PatchTarget{Kind: "Role"}
	operation := func(kind, path string, value any) v1alpha1.Patch {
		data := toAny([]map[string]any{{"op": kind, "path": path, "value": value}})
		return v1alpha1.Patch{Target: &v1alpha1.PatchTarget{Kind: "RoleBinding"}, Patch: marshal(data)}
	}
	onRole := func(kind, path string, value any) v1alpha1.Patch {
		patch := operation(kind, path, value)
		patch.Target = role
		return patch
	}
	patches := []v1alpha1.Patch{
		onRole("replace", "/apiVersion",
			pick(g, "rbac.authorization.k8s.io/v1beta1", "rbac.authorization.k8s.io/v2", "v1")),
		onRole("replace", "/kind", pick(g, "ConfigMap", "RoleBinding")),
		onRole("replace", "/metadata/name", g.name(pick(g, "viewer", "worker"))),
		onRole("add", "/metadata/labels", map[string]string{RefuseLabel: "true"}),
		onRole("add", "/metadata/annotations", map[string]string{"a": strings.Repeat("x", 256*1024-1-g.IntN(400))}),
		onRole("replace", "/rules", g.rules(held)),
		onRole("replace", "/rules", []rbacv1.PolicyRule{g.right()}),
		onRole("remove", "/rules", nil),
		operation("replace", "/roleRef/name", g.name(pick(g, "worker", "viewer"))),
		operation("replace", "/roleRef",
			rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: pick(g, "view", "admin")}),
		operation("replace", "/subjects/0/name", pick(g, "bob", "$(CREATOR)")),
		operation("remove", "/subjects", nil),
		{
			Target: role,
			Patch:  "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: any}\n$patch: delete\n",
		},
		{
			Target: &v1alpha1.PatchTarget{Kind: "ConfigMap"},
			Patch:  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: any}\n$patch: delete\n",
		},
	}
	overlay.Patches = []v1alpha1.Patch{pick(g, patches...)}
	if g.chance(20) {
		overlay.Labels = map[string]string{pick(g, "a", RefuseLabel): "true"}
	}
	return overlay
}
