package webhook

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/attributes"
)

// kubelets is the group of all kubelets.
const kubelets = "system:nodes"

// NotMirrorPod returns an expression that excludes mirror pods. A kubelet creates a mirror pod to show a static pod
// that it runs from a file on its node. Denying the mirror pod would not stop the static pod.
func NotMirrorPod() string {
	return "!(request.resource.resource == 'pods' && '" + kubelets +
		"' in request.userInfo.?groups.orValue([]) && " +
		"[object, oldObject].exists(o, o != null && '" + corev1.MirrorPodAnnotationKey +
		"' in o.?metadata.?annotations.orValue({})))"
}

// IsMirrorPod reports whether NotMirrorPod excludes a request.
func IsMirrorPod(request *Request) bool {
	who := attributes.Requester{Groups: request.UserInfo.Groups}
	if request.Resource.Resource != "pods" || !who.Is(attributes.Subject{Group: true, Name: kubelets}) {
		return false
	}
	for _, object := range []*unstructured.Unstructured{request.Object, request.OldObject} {
		if object == nil {
			continue
		}
		if _, mirror := object.GetAnnotations()[corev1.MirrorPodAnnotationKey]; mirror {
			return true
		}
	}
	return false
}
