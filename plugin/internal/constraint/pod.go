package constraint

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	strictjson "sigs.k8s.io/json"
)

// podTemplateIn returns a pod, or what a workload makes its pods of; nil if there is none.
func podTemplateIn(object *unstructured.Unstructured) map[string]any {
	if object.GetKind() == "Pod" {
		return object.Object
	}
	for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}, {"template"}} {
		if found, there, _ := unstructured.NestedMap(object.Object, path...); there && found["spec"] != nil {
			return found
		}
	}
	return nil
}

// podOf returns the pod that an object is, or that is made of its template.
func (o *sccReview) podOf(object *unstructured.Unstructured, template map[string]any) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := o.decode(object, template, pod); err != nil {
		return nil, err
	}
	if pod.Name == "" {
		pod.Name = object.GetName()
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	defaultPorts(&pod.Spec)
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = pod.Spec.DeprecatedServiceAccount
	}
	if object.GetKind() == "StatefulSet" {
		claims, _, _ := unstructured.NestedSlice(object.Object, "spec", "volumeClaimTemplates")
		for _, claim := range claims {
			fields, _ := claim.(map[string]any)
			name, _, _ := unstructured.NestedString(fields, "metadata", "name")
			pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-" + object.GetName() + "-0"},
			}})
		}
	}
	return pod, nil
}

// decode reads fields of an object, and says which of them is wrong or not known.
func (o *sccReview) decode(object *unstructured.Unstructured, fields map[string]any, into any) error {
	data, err := json.Marshal(fields)
	if err != nil {
		return err
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

// defaultPorts does what the API server does to pods in the host's network before they are admitted.
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
