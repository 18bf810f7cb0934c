package hierarchy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// countedWhole are the resources of which there are no parts. Counts of objects and extended resources have none
// either.
var countedWhole = []corev1.ResourceName{
	corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceQuotas,
	corev1.ResourceSecrets,
	corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServicesNodePorts,
	corev1.ResourceServicesLoadBalancers,
}

// measured are the other resources of Kubernetes' own that a quota can limit.
var measured = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
	corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage,
	corev1.ResourceRequestsEphemeralStorage,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage,
}

// checkQuota says what the API server would find wrong with a limit of a ResourceQuota, or nothing.
func checkQuota(name corev1.ResourceName, hard corev1.ResourceList) string {
	quantity := hard[name]
	whole := slices.Contains(countedWhole, name) || extended(string(name))
	hugePages := strings.HasPrefix(strings.TrimPrefix(string(name), "requests."), corev1.ResourceHugePagesPrefix)
	reasons := content.IsLabelKey(string(name))
	switch {
	case len(reasons) > 0:
		return "is no name of a resource: " + strings.Join(reasons, "; ")
	case !whole && !hugePages && !strings.Contains(string(name), "/") && !slices.Contains(measured, name):
		return "is no resource that a quota can limit: is it misspelt, or does it lack its group?"
	case quantity.Sign() < 0:
		return "is " + quantity.String() + ": it can't be negative"
	case whole && quantity.MilliValue()%1000 != 0:
		return "is " + quantity.String() + ": it must be a whole number"
	}
	return ""
}

// extended tells whether a resource is none of Kubernetes' own, as the API server tells it.
func extended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}
