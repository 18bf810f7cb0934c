package constraint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	strictjson "sigs.k8s.io/json"

	"nstpl.dev/nstpl/operator/engine/quantities"
	"nstpl.dev/nstpl/plugin/internal/workload"
)

// podOf returns the pod of an object: the object itself, or the pod that a controller creates from its template. The
// pod has the fields that Kubernetes sets before admission.
func (o *review) podOf(object *unstructured.Unstructured, template map[string]any) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := o.decode(object, template, pod); err != nil {
		return nil, err
	}
	pod.Name = cmp.Or(pod.Name, object.GetName())
	pod.APIVersion, pod.Kind = "v1", "Pod"
	defaultPorts(&pod.Spec)
	pod.Spec.ServiceAccountName = cmp.Or(pod.Spec.ServiceAccountName, pod.Spec.DeprecatedServiceAccount)
	workload.AddClaims(&pod.Spec, object)
	return pod, nil
}

// decode decodes fields of an object. It returns an error for a field of a wrong type, and prints a warning for an
// unknown field.
func (o *review) decode(object *unstructured.Unstructured, fields map[string]any, into any) error {
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	if err := quantities.Check(data, reflect.TypeOf(into)); err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	unknown, err := strictjson.UnmarshalStrict(data, into)
	if err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	for _, field := range unknown {
		o.Note("Warning: %s %s: %v", object.GetKind(), object.GetName(), field)
	}
	return nil
}

// defaultPorts sets the host ports of a pod with host network, as the API server does before admission.
func defaultPorts(spec *corev1.PodSpec) {
	if !spec.HostNetwork {
		return
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			for j := range containers[i].Ports {
				if port := &containers[i].Ports[j]; port.HostPort == 0 {
					port.HostPort = port.ContainerPort
				}
			}
		}
	}
}
