package schema

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// counts are the kinds of objects that a ResourceQuota counts by a name without a group.
var counts = []string{
	"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services",
	"services.loadbalancers", "services.nodeports",
}

// compute are the resources of containers.
var compute = []string{"cpu", "ephemeral-storage", "memory"}

// quotaResources are the names that spec.hard of a ResourceQuota may have without a domain.
var quotaResources = slices.Concat(counts, compute, []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory",
	"requests.cpu", "requests.ephemeral-storage", "requests.memory", "requests.storage",
})

// quota checks the limits of a ResourceQuota.
func (c *checker) quota(at *field.Path, entries map[string]any) {
	hard, _ := entries["hard"].(map[string]any)
	for name, value := range hard {
		at := at.Child("hard").Key(name)
		isHugePages := strings.HasPrefix(strings.TrimPrefix(name, "requests."), corev1.ResourceHugePagesPrefix)
		if !c.resourceName(at, name, isHugePages, quotaResources) {
			continue
		}
		quantity, ok := quantityOf(value)
		switch {
		case !ok:
		case quantity.Sign() < 0:
			c.report(at, "must not be negative", "")
		case isCounted(name) && quantity.MilliValue()%1000 != 0:
			c.report(at, "must be a whole number", "")
		}
	}
}

// isCounted reports whether a resource is counted in whole numbers, as objects and devices are.
func isCounted(name string) bool {
	isExtended := strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") &&
		!strings.HasPrefix(name, "requests.")
	return isExtended || slices.Contains(counts, name)
}

// resourceName checks the name of a resource: it is one of those known or has a domain. It returns whether the name is
// valid.
func (c *checker) resourceName(at *field.Path, name string, isHugePages bool, known []string) bool {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		c.report(at, fmt.Sprintf("%q is not the name of a resource", name), problems[0])
		return false
	}
	if isHugePages || slices.Contains(known, name) || strings.Contains(name, "/") {
		return true
	}
	remedy := "use one of " + andList(known) + ", or a name with a domain such as example.com/gpu"
	if slices.Contains(known, "pods") {
		remedy = "use count/RESOURCE.GROUP to count objects, such as count/deployments.apps"
	}
	if similar := Closest(name, known); similar != "" {
		remedy = "did you mean " + similar + "?"
	}
	c.report(at, "unknown resource", remedy)
	return false
}

// limit checks an item of a LimitRange.
func (c *checker) limit(at *field.Path, entries map[string]any) {
	kind, _ := entries["type"].(string)
	kinds := []string{"Container", "PersistentVolumeClaim", "Pod"}
	if !strings.Contains(kind, "/") {
		c.oneOf(at.Child("type"), kind, kinds...)
	}
	if !slices.Contains(kinds, kind) {
		return
	}
	known := compute
	if kind == "PersistentVolumeClaim" {
		known = append(slices.Clone(quotaResources), "storage")
	}
	for _, name := range []string{"default", "defaultRequest", "max", "maxLimitRequestRatio", "min"} {
		resources, _ := entries[name].(map[string]any)
		if len(resources) > 0 && kind == "Pod" && strings.HasPrefix(name, "default") {
			c.report(at.Child(name), "is not allowed in a limit of Pods", "declare it in a limit of the type Container")
			continue
		}
		for resource := range resources {
			c.resourceName(at.Child(name).Key(resource), resource,
				strings.HasPrefix(resource, corev1.ResourceHugePagesPrefix), known)
		}
	}
	for _, order := range [][2]string{
		{"min", "max"}, {"min", "default"}, {"min", "defaultRequest"}, {"defaultRequest", "default"},
		{"default", "max"}, {"defaultRequest", "max"},
	} {
		c.ordered(at, entries, order[0], order[1])
	}
}

// ordered reports each resource with a greater quantity in one field than in another.
func (c *checker) ordered(at *field.Path, entries map[string]any, lesser, greater string) {
	below, _ := entries[lesser].(map[string]any)
	above, _ := entries[greater].(map[string]any)
	for name := range below {
		low, hasLow := quantityOf(below[name])
		high, hasHigh := quantityOf(above[name])
		if hasLow && hasHigh && low.Cmp(high) > 0 {
			c.report(at.Child(lesser).Key(name),
				fmt.Sprintf("%s is more than the %s in %s", low.String(), high.String(), greater), "")
		}
	}
}

// quantityOf returns a quantity as it is decoded from JSON.
func quantityOf(value any) (resource.Quantity, bool) {
	switch value := value.(type) {
	case string:
		quantity, err := resource.ParseQuantity(value)
		return quantity, err == nil
	case int64, float64:
		quantity, err := resource.ParseQuantity(scalarText(value))
		return quantity, err == nil
	}
	return resource.Quantity{}, false
}
