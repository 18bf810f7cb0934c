package quota

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	resourcehelper "k8s.io/component-helpers/resource"
)

// UsageOf returns what an object of a resource uses, as the API server counts it, except for CountsDevices.
func UsageOf(created schema.GroupResource, object *unstructured.Unstructured) (corev1.ResourceList, error) {
	used := OneMore(created).New
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	switch created {
	case schema.GroupResource{Resource: "pods"}:
		pod := &corev1.Pod{}
		if err := convert(object.Object, pod); err != nil {
			return nil, err
		}
		addPod(used, pod)
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		claim := &corev1.PersistentVolumeClaim{}
		if err := convert(object.Object, claim); err != nil {
			return nil, err
		}
		addClaim(used, claim)
	case schema.GroupResource{Resource: "services"}:
		service := &corev1.Service{}
		if err := convert(object.Object, service); err != nil {
			return nil, err
		}
		addService(used, service)
	}
	return used, nil
}

// CountsDevices reports whether ResourceClaims may count for a limit on devices. UsageOf does not count them: the API
// server does by device classes, which may stand for an extended resource (KEP-5004).
func CountsDevices(name corev1.ResourceName) bool {
	created := Requested(name)
	if extended, isRequest := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix); isRequest {
		return strings.Contains(extended, "/")
	}
	return created.Resource == "resourceclaims" && name != corev1.ResourceName(countPrefix+created.String())
}

func addPod(used corev1.ResourceList, pod *corev1.Pod) {
	// Of extended resources, such as GPUs, only requests count.
	isExtended := func(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }
	for name, amount := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		used[corev1.DefaultResourceRequestsPrefix+name] = amount
		if !isExtended(name) {
			used[name] = amount
		}
	}
	for name, amount := range resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if !isExtended(name) {
			used["limits."+name] = amount
		}
	}
}

func addClaim(used corev1.ResourceList, claim *corev1.PersistentVolumeClaim) {
	storage := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	storage.RoundUp(0) // to whole bytes, as the API server does
	used[corev1.ResourceRequestsStorage] = storage
	class := claim.Annotations[corev1.BetaStorageClassAnnotation]
	if of := claim.Spec.StorageClassName; of != nil {
		class = cmp.Or(class, *of)
	}
	if class != "" {
		prefix := corev1.ResourceName(class + storageClassInfix)
		used[prefix+corev1.ResourceRequestsStorage] = storage
		used[prefix+corev1.ResourcePersistentVolumeClaims] = *resource.NewQuantity(1, resource.DecimalSI)
	}
}

func addService(used corev1.ResourceList, service *corev1.Service) {
	var ports int64
	allocates := service.Spec.AllocateLoadBalancerNodePorts
	for _, port := range service.Spec.Ports {
		switch service.Spec.Type {
		case corev1.ServiceTypeNodePort:
			ports++
		case corev1.ServiceTypeLoadBalancer:
			if allocates == nil || *allocates || port.NodePort != 0 {
				ports++
			}
		}
	}
	used[corev1.ResourceServicesNodePorts] = *resource.NewQuantity(ports, resource.DecimalSI)
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
		used[corev1.ResourceServicesLoadBalancers] = *resource.NewQuantity(1, resource.DecimalSI)
	}
}
