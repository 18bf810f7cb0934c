package schema

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nstpl.dev/nstpl/operator/engine/quantities"
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
		quantity, _ := quantityOf(value) // zero if it is none, which is reported elsewhere
		if message, remedy := CheckLimit(name, quantity); message != "" {
			c.report(at.Child("hard").Key(name), message, remedy)
		}
	}
}

// CheckLimit returns why the API server would reject a limit of a ResourceQuota, and a remedy if one is known. The
// message is empty if the API server would not.
func CheckLimit(name string, quantity resource.Quantity) (message, remedy string) {
	isHugePages := strings.HasPrefix(strings.TrimPrefix(name, "requests."), corev1.ResourceHugePagesPrefix)
	message, remedy = checkResourceName(name, isHugePages, quotaResources)
	switch {
	case message != "":
		return message, remedy
	case quantity.Sign() < 0:
		return "must not be negative", ""
	case isCounted(name) && quantity.MilliValue()%1000 != 0:
		return "must be a whole number", ""
	}
	return "", ""
}

// isCounted reports whether a resource is counted in whole numbers, as objects and devices are.
func isCounted(name string) bool {
	isExtended := strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") &&
		!strings.HasPrefix(name, "requests.")
	return isExtended || slices.Contains(counts, name)
}

// checkResourceName returns what is wrong about the name of a resource, which is one of those known or has a domain,
// and a remedy. The message is empty if the name is valid.
func checkResourceName(name string, isHugePages bool, known []string) (message, remedy string) {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return fmt.Sprintf("%q is not the name of a resource", name), problems[0]
	}
	if isHugePages || slices.Contains(known, name) || strings.Contains(name, "/") {
		return "", ""
	}
	remedy = "use one of " + andList(known) + ", or a name with a domain such as example.com/gpu"
	if slices.Contains(known, "pods") {
		remedy = "use count/RESOURCE.GROUP to count objects, such as count/deployments.apps"
	}
	if similar := Closest(name, known); similar != "" {
		remedy = "did you mean " + similar + "?"
	}
	return "unknown resource", remedy
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
			isHugePages := strings.HasPrefix(resource, corev1.ResourceHugePagesPrefix)
			if message, remedy := checkResourceName(resource, isHugePages, known); message != "" {
				c.report(at.Child(name).Key(resource), message, remedy)
			}
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
		quantity, err := quantities.Parse(value)
		return quantity, err == nil
	case int64, float64:
		quantity, err := quantities.Parse(scalarText(value))
		return quantity, err == nil
	}
	return resource.Quantity{}, false
}
