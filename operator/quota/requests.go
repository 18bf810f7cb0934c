package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// plain are the resources of the core group that a quota counts by their own names.
var plain = []string{
	"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services",
}

const countPrefix = "count/"

// Requested returns the resource that is created when more is used of what a quota limits: a pod for cpu, a claim for
// storage.
func Requested(name corev1.ResourceName) schema.GroupResource {
	text := string(name)
	switch {
	case strings.HasPrefix(text, countPrefix):
		return schema.ParseGroupResource(strings.TrimPrefix(text, countPrefix))
	case slices.Contains(plain, text):
		return schema.GroupResource{Resource: text}
	case strings.HasPrefix(text, "services."):
		return schema.GroupResource{Resource: "services"}
	case name == corev1.ResourceRequestsStorage, strings.Contains(text, ".storageclass.storage.k8s.io/"):
		return schema.GroupResource{Resource: "persistentvolumeclaims"}
	case strings.Contains(text, ".deviceclass.resource.k8s.io/"):
		return schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	}
	return schema.GroupResource{Resource: "pods"}
}

// early are resources that Kubernetes, or templates, put into every namespace.
var early = []corev1.ResourceName{
	corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas, corev1.ResourceServices,
}

// Early tells whether there may be something of a resource in a namespace before the API server counts in it, so that
// its first count may be wrong.
func Early(name corev1.ResourceName) bool {
	text := string(name)
	workload := strings.HasSuffix(text, ".apps") || strings.HasSuffix(text, ".batch") || text == countPrefix+"pods"
	return strings.HasPrefix(text, countPrefix) && !workload || slices.Contains(early, name)
}

// units are the limits that one more object of a resource counts as one for.
func units(created schema.GroupResource) []corev1.ResourceName {
	names := []corev1.ResourceName{corev1.ResourceName(countPrefix + created.String())}
	if created.Group == "" && slices.Contains(plain, created.Resource) {
		names = append(names, corev1.ResourceName(created.Resource))
	}
	return names
}

// OneMore returns the change that one more object of a resource makes at least, in whatever namespace.
func OneMore(created schema.GroupResource) Change {
	change := Change{New: corev1.ResourceList{}}
	for _, name := range units(created) {
		change.New[name] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return change
}

// Spacious tells whether a space has room for so many more objects of a resource, whatever they are.
func Spacious(space *v1alpha1.PolicySpace, created schema.GroupResource, objects int64) bool {
	if !CountsOnly(space, created) {
		return false
	}
	hard := Hard(space)
	return !slices.ContainsFunc(units(created), func(name corev1.ResourceName) bool {
		limit, limited := hard[name]
		return limited && limit.Cmp(plus(space.Status.Used[name], objects)) < 0
	})
}

// One returns what one of several requests adds at least, if a change is that of several: an object counts as one.
func (c Change) One() (one Change, several bool) {
	one = Change{Namespace: c.Namespace, Old: c.Old, New: corev1.ResourceList{}, Since: c.Since}
	for _, name := range c.Adds() {
		if !slices.Contains(units(Requested(name)), name) {
			continue
		}
		if after := plus(c.Old[name], 1); after.Cmp(c.New[name]) < 0 {
			one.New[name] = after
		}
	}
	return one, len(one.New) > 0
}

func plus(quantity resource.Quantity, more int64) resource.Quantity {
	sum := quantity.DeepCopy()
	sum.Add(*resource.NewQuantity(more, resource.DecimalSI))
	return sum
}

// CountsOnly tells whether a space limits the number of objects of a resource, and nothing else about them.
func CountsOnly(space *v1alpha1.PolicySpace, created schema.GroupResource) bool {
	counted := units(created)
	for name := range Hard(space) {
		if Requested(name) == created && !slices.Contains(counted, name) {
			return false
		}
	}
	return true
}
