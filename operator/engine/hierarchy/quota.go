package hierarchy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// wholeResources are the resources that are counted in whole numbers, as objects and extended resources are.
var wholeResources = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceQuotas,
	corev1.ResourceSecrets,
	corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts,
	corev1.ResourceServicesLoadBalancers,
}

// measuredResources are the other built-in resources that a quota can limit.
var measuredResources = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage,
	corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

// CheckLimit returns why the API server would reject a limit of a ResourceQuota, or "" if it would not.
func CheckLimit(name corev1.ResourceName, hard corev1.ResourceList) string {
	quantity := hard[name]
	whole := slices.Contains(wholeResources, name) || isExtended(string(name))
	hugePages := strings.HasPrefix(strings.TrimPrefix(string(name), "requests."), corev1.ResourceHugePagesPrefix)
	reasons := content.IsLabelKey(string(name))
	switch {
	case len(reasons) > 0:
		return "is not a valid resource name: " + strings.Join(reasons, "; ")
	case !whole && !hugePages && !strings.Contains(string(name), "/") && !slices.Contains(measuredResources, name):
		return "is not a resource that a quota can limit: check its spelling and its API group"
	case quantity.Sign() < 0:
		return "is " + quantity.String() + ": it can't be negative"
	case whole && quantity.MilliValue()%1000 != 0:
		return "is " + quantity.String() + ": it must be a whole number"
	}
	return ""
}

// isExtended reports whether a resource is an extended resource, as the API server decides it.
func isExtended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}
