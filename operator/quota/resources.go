package quota

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// coreCounts are the resources of the core group that a quota counts by their own names.
var coreCounts = []string{
	"configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services",
}

const (
	countPrefix       = "count/"
	storageClassInfix = ".storageclass.storage.k8s.io/"
)

// Requested returns the resource whose objects use something that a quota limits: pods use cpu, and
// persistentvolumeclaims use storage.
func Requested(name corev1.ResourceName) schema.GroupResource {
	text := string(name)
	switch {
	case strings.HasPrefix(text, countPrefix):
		return schema.ParseGroupResource(strings.TrimPrefix(text, countPrefix))
	case slices.Contains(coreCounts, text):
		return schema.GroupResource{Resource: text}
	case strings.HasPrefix(text, "services."):
		return schema.GroupResource{Resource: "services"}
	case name == corev1.ResourceRequestsStorage, strings.Contains(text, storageClassInfix):
		return schema.GroupResource{Resource: "persistentvolumeclaims"}
	case strings.Contains(text, ".deviceclass.resource.k8s.io/"):
		return schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	}
	return schema.GroupResource{Resource: "pods"}
}

// inNewNamespaces are the resources of which Kubernetes, or templates, create objects in every new namespace.
var inNewNamespaces = []corev1.ResourceName{
	corev1.ResourceConfigMaps, corev1.ResourceSecrets, corev1.ResourceQuotas, corev1.ResourceServices,
}

// MayPrecedeCounting reports whether a namespace may already use a resource before the API server counts in it, so that
// its first count may be too low.
func MayPrecedeCounting(name corev1.ResourceName) bool {
	text := string(name)
	workload := strings.HasSuffix(text, ".apps") || strings.HasSuffix(text, ".batch") || text == countPrefix+"pods"
	return strings.HasPrefix(text, countPrefix) && !workload || slices.Contains(inNewNamespaces, name)
}

// units returns the limits on the number of objects of a resource. One more object adds one to each of them.
func units(created schema.GroupResource) []corev1.ResourceName {
	names := []corev1.ResourceName{corev1.ResourceName(countPrefix + created.String())}
	if created.Group == "" && slices.Contains(coreCounts, created.Resource) {
		names = append(names, corev1.ResourceName(created.Resource))
	}
	return names
}

// OneMore returns the smallest change that creating an object of a resource makes, in any namespace.
func OneMore(created schema.GroupResource) Change {
	change := Change{New: corev1.ResourceList{}}
	for _, name := range units(created) {
		change.New[name] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return change
}

// HasRoom reports whether the limits of a policy space allow that many more objects of a resource, whatever they
// contain.
func HasRoom(space *v1alpha1.PolicySpace, created schema.GroupResource, objects int64) bool {
	if !LimitsCountOnly(space, created) {
		return false
	}
	hard := Hard(space)
	return !slices.ContainsFunc(units(created), func(name corev1.ResourceName) bool {
		limit, limited := hard[name]
		return limited && limit.Cmp(add(space.Status.Used[name], objects)) < 0
	})
}

// One returns the smallest change that a single object makes, and whether the change is that of several objects: the
// API server may ask for the sum of several requests.
func (c Change) One() (one Change, several bool) {
	one = Change{Namespace: c.Namespace, Old: c.Old, New: corev1.ResourceList{}, Since: c.Since}
	for _, name := range c.Adds() {
		if !slices.Contains(units(Requested(name)), name) {
			continue
		}
		if after := add(c.Old[name], 1); after.Cmp(c.New[name]) < 0 {
			one.New[name] = after
		}
	}
	return one, len(one.New) > 0
}

func add(quantity resource.Quantity, more int64) resource.Quantity {
	sum := quantity.DeepCopy()
	sum.Add(*resource.NewQuantity(more, resource.DecimalSI))
	return sum
}

// LimitsCountOnly reports whether a policy space limits nothing else about a resource than the number of its objects.
func LimitsCountOnly(space *v1alpha1.PolicySpace, created schema.GroupResource) bool {
	counted := units(created)
	for name := range Hard(space) {
		if Requested(name) == created && !slices.Contains(counted, name) {
			return false
		}
	}
	return true
}
