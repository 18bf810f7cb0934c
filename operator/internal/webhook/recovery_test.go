package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func TestIsNeededToRecover(t *testing.T) {
	t.Parallel()
	pods := func(operation admissionv1.Operation, namespace, subresource string) *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{
			Operation: operation, Namespace: namespace, SubResource: subresource,
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		}
	}
	nodes := func(operation admissionv1.Operation, groups ...string) *admissionv1.AdmissionRequest {
		return &admissionv1.AdmissionRequest{
			Operation: operation, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "nodes"},
			UserInfo: authenticationv1.UserInfo{Groups: groups},
		}
	}
	labels := func(labels map[string]string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetLabels(labels)
		return object
	}
	annotations := func(annotations map[string]string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{}}
		object.SetAnnotations(annotations)
		return object
	}
	for name, test := range map[string]struct {
		request    *admissionv1.AdmissionRequest
		old, after *unstructured.Unstructured
		want       bool
	}{
		"a deletion in kube-system": {request: pods(admissionv1.Delete, "kube-system", ""), want: true},
		"an eviction of the operator": {
			request: pods(admissionv1.Create, "nstpl-system", "eviction"), want: true,
		},
		"a creation in kube-system": {
			request: pods(admissionv1.Create, "kube-system", ""), after: labels(nil),
		},
		"an update of the operator's pod": {
			request: pods(admissionv1.Update, "nstpl-system", ""), old: labels(nil), after: labels(nil),
		},
		"a deletion elsewhere":  {request: pods(admissionv1.Delete, "kube-public", "")},
		"an eviction elsewhere": {request: pods(admissionv1.Create, "team-a", "eviction")},
		"the registration of a node": {
			request: nodes(admissionv1.Create, "system:nodes"), after: labels(map[string]string{"tenant": "a"}),
			want: true,
		},
		"a node that a user creates": {
			request: nodes(admissionv1.Create, "system:masters"), after: labels(nil),
		},
		"a node that a kubelet deletes": {request: nodes(admissionv1.Delete, "system:nodes"), old: labels(nil)},
		"a kubelet's own labels": {
			nodes(admissionv1.Update, "system:nodes"), labels(map[string]string{"a": "b"}),
			labels(map[string]string{"a": "b", "kubernetes.io/hostname": "x", "topology.kubernetes.io/zone": "z"}),
			true,
		},
		"a label that a kubelet adds": {
			nodes(admissionv1.Update, "system:nodes"), labels(nil), labels(map[string]string{"tenant": "a"}), false,
		},
		"a label that a kubelet removes": {
			nodes(admissionv1.Update, "system:nodes"), labels(map[string]string{"tenant": "a"}), labels(nil), false,
		},
		"a label that a kubelet changes": {
			nodes(admissionv1.Update, "system:nodes"), labels(map[string]string{"tenant": "a"}),
			labels(map[string]string{"tenant": "b"}), false,
		},
		"a label that NodeRestriction denies to kubelets": {
			nodes(admissionv1.Update, "system:nodes"), labels(nil),
			labels(map[string]string{"node-restriction.kubernetes.io/a": "b"}), false,
		},
		"an annotation that a kubelet adds": {
			nodes(admissionv1.Update, "system:nodes"), annotations(nil), annotations(map[string]string{"tenant": "a"}),
			false,
		},
		"a kubelet's own annotation": {
			nodes(admissionv1.Update, "system:nodes"), annotations(nil),
			annotations(map[string]string{"csi.volume.kubernetes.io/nodeid": "x"}), true,
		},
		"a label whose domain ends like a kubelet's": {
			nodes(admissionv1.Update, "system:nodes"), labels(nil), labels(map[string]string{"mykubernetes.io/a": "b"}),
			false,
		},
		"a label whose domain begins like a kubelet's": {
			nodes(admissionv1.Update, "system:nodes"), labels(nil),
			labels(map[string]string{"kubernetes.io.example.com/a": "b"}), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want,
				IsNeededToRecover(&Request{
					Request: ctrladmission.Request{AdmissionRequest: *test.request}, Object: test.after,
					OldObject: test.old,
				}))
		})
	}
	custom := pods(admissionv1.Delete, "kube-system", "")
	custom.Resource.Group = "example.com"
	require.False(t, IsNeededToRecover(&Request{Request: ctrladmission.Request{AdmissionRequest: *custom}}),
		"pods of another group")
}

func TestIsMirrorPod(t *testing.T) {
	t.Parallel()
	mirror, plain := &unstructured.Unstructured{Object: map[string]any{}},
		&unstructured.Unstructured{Object: map[string]any{}}
	mirror.SetAnnotations(map[string]string{corev1.MirrorPodAnnotationKey: "x"})
	for name, test := range map[string]struct {
		resource, group string
		object, old     *unstructured.Unstructured
		want            bool
	}{
		"a creation by a kubelet":                  {"pods", kubelets, mirror, nil, true},
		"a deletion by a kubelet":                  {"pods", kubelets, nil, mirror, true},
		"an update that removes the annotation":    {"pods", kubelets, plain, mirror, true},
		"another pod of a kubelet":                 {"pods", kubelets, plain, nil, false},
		"a pod with the annotation, by a user":     {"pods", "system:authenticated", mirror, nil, false},
		"a ConfigMap with the annotation":          {"configmaps", kubelets, mirror, nil, false},
		"a connection, which has no object at all": {"pods", kubelets, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := &Request{Object: test.object, OldObject: test.old}
			request.Resource = metav1.GroupVersionResource{Version: "v1", Resource: test.resource}
			request.UserInfo.Groups = []string{test.group}
			require.Equal(t, test.want, IsMirrorPod(request))
		})
	}
}
