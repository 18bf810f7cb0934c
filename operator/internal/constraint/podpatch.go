package constraint

import (
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/scc"
)

// patchPod copies the security contexts that a constraint generated to the object of a request. If record is true, it
// also sets the annotations that name the constraint. It keeps fields that this version of the operator does not know.
func patchPod(object *unstructured.Unstructured, before *corev1.Pod, verdict *scc.Verdict, record bool) error {
	if record {
		render.AddAnnotations(object, map[string]string{
			v1alpha1.SCCAnnotation: verdict.Constraint, v1alpha1.SCCSubjectAnnotation: verdict.Subject,
		})
	}
	spec, _ := object.Object["spec"].(map[string]any)
	if err := mergeContext(spec, before.Spec.SecurityContext, verdict.Pod.Spec.SecurityContext); err != nil {
		return err
	}
	old, updated := contexts(&before.Spec), contexts(&verdict.Pod.Spec)
	for field := range old {
		list, _ := spec[field].([]any)
		for i := range list {
			container, _ := list[i].(map[string]any)
			if err := mergeContext(container, old[field][i], updated[field][i]); err != nil {
				return fmt.Errorf("%s[%d]: %w", field, i, err)
			}
		}
	}
	return nil
}

// contexts returns the security contexts of containers, by the field of the spec that lists the containers.
func contexts(spec *corev1.PodSpec) map[string][]*corev1.SecurityContext {
	byField := map[string][]*corev1.SecurityContext{}
	for i := range spec.InitContainers {
		byField["initContainers"] = append(byField["initContainers"], spec.InitContainers[i].SecurityContext)
	}
	for i := range spec.Containers {
		byField["containers"] = append(byField["containers"], spec.Containers[i].SecurityContext)
	}
	for i := range spec.EphemeralContainers {
		byField["ephemeralContainers"] = append(byField["ephemeralContainers"],
			spec.EphemeralContainers[i].SecurityContext)
	}
	return byField
}

// mergeContext merges the differences between two security contexts into the field securityContext of a map.
func mergeContext[T any](of map[string]any, old, updated *T) error {
	before, err := json.Marshal(orEmpty(old))
	if err != nil {
		return err
	}
	after, err := json.Marshal(orEmpty(updated))
	if err != nil {
		return err
	}
	difference, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil || string(difference) == "{}" {
		return err
	}
	current, err := json.Marshal(of["securityContext"])
	if err != nil {
		return err
	}
	if of["securityContext"] == nil {
		current = []byte("{}")
	}
	merged, err := jsonpatch.MergePatch(current, difference)
	if err != nil {
		return err
	}
	context := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(merged, &context.Object); err != nil {
		return err
	}
	of["securityContext"] = context.Object
	return nil
}

func orEmpty[T any](value *T) *T {
	if value == nil {
		return new(T)
	}
	return value
}
