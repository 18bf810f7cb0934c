package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

const rbacVersion = "rbac.authorization.k8s.io/v1"

// baselineObjects returns the objects of the baseline. A rollout changes the first.
func baselineObjects() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		object("networking.k8s.io/v1", "NetworkPolicy", "default-deny", map[string]any{"spec": map[string]any{
			"podSelector": map[string]any{}, "policyTypes": []any{"Ingress", "Egress"},
		}}),
		object("v1", "ResourceQuota", "budget", map[string]any{"spec": map[string]any{
			"hard": map[string]any{"pods": "50", "requests.cpu": "4", "requests.memory": "8Gi"},
		}}),
		object("v1", "LimitRange", "defaults", map[string]any{"spec": map[string]any{"limits": []any{map[string]any{
			"type":           "Container",
			"defaultRequest": map[string]any{"cpu": "100m", "memory": "128Mi"},
			"default":        map[string]any{"memory": "256Mi"},
		}}}}),
		object("v1", "ServiceAccount", "deployer", nil),
	}
}

func profileObject() *unstructured.Unstructured {
	return object("v1", "ConfigMap", "profile",
		map[string]any{"data": map[string]any{"proxy": "proxy.example.com:3128"}})
}

// viewers returns a RoleBinding that lets a group view. The one of a policy space has the space before its name.
func viewers(name, group string) *unstructured.Unstructured {
	return object(rbacVersion, "RoleBinding", name, map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}},
	})
}

// floorObjects returns objects like those that templates declare for a namespace, for the floor.
func floorObjects() []*unstructured.Unstructured {
	all := append(baselineObjects(), profileObject())
	for _, space := range []string{root, north, moved, divisionName(0), teamName(0)} {
		all = append(all, viewers(space+".viewers", space+"-viewers"))
	}
	for _, object := range all {
		object.SetLabels(map[string]string{stageLabel: "a"})
	}
	return all
}

// attributeRules returns the ProtectedAttributes from number from on, each in a namespace of its own.
func (c content) attributeRules(from int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := from; i < c.rules(); i++ {
		name := fmt.Sprintf("rule-%04d", i)
		rule := object(v1alpha1.GroupVersion.String(), "ProtectedAttribute", name, map[string]any{
			"attributeKind": string(v1alpha1.LabelAttribute), "attributeName": name + ".example.com/environment",
			"protectedValues": []any{"production"},
			"roleRef":         map[string]any{"kind": v1alpha1.ClusterRoleKind, "name": "admin"},
		})
		rule.SetNamespace(namespaceName(i))
		all = append(all, rule)
	}
	return all
}

// securityConstraints returns the SecurityContextConstraints from number from on.
func (c content) securityConstraints(from int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := from; i < c.constraints(); i++ {
		all = append(all, object(v1alpha1.GroupVersion.String(), "SecurityContextConstraints",
			fmt.Sprintf("constraint-%03d", i), map[string]any{
				"groups":             []any{fmt.Sprintf("group-%03d", i)},
				"runAsUser":          map[string]any{"type": "MustRunAsRange"},
				"seLinuxContext":     map[string]any{"type": "MustRunAs"},
				"fsGroup":            map[string]any{"type": "MustRunAs"},
				"supplementalGroups": map[string]any{"type": "RunAsAny"},
				"volumes":            []any{"configMap", "emptyDir", "projected", "secret"},
			}))
	}
	return all
}
