package webhook

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/attributes"
)

const kubelets = "system:nodes"

// notAMirrorPod leaves out what kubelets show of what they run from their own files, which nobody has asked the API
// server for.
func NotMirrorPod() admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{
		Name: "not-a-mirror-pod",
		Expression: "!(request.resource.resource == 'pods' && '" + kubelets +
			"' in request.userInfo.?groups.orValue([]) && " +
			"[object, oldObject].exists(o, o != null && '" + corev1.MirrorPodAnnotationKey +
			"' in o.?metadata.?annotations.orValue({})))",
	}
}

// ofAMirrorPod decides as notAMirrorPod does.
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
