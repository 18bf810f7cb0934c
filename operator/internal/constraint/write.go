package constraint

import (
	"encoding/json"
	"fmt"
	"maps"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

// write copies the security contexts that a constraint generated to the object and, if record is set, the constraint's
// name. Fields that this program does not know are kept.
func write(object *unstructured.Unstructured, before *corev1.Pod, verdict *scc.Verdict, record bool) error {
	if record {
		annotations := maps.Clone(object.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.SCCAnnotation], annotations[v1alpha1.SCCSubjectAnnotation] = verdict.Constraint,
			verdict.Subject
		object.SetAnnotations(annotations)
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

// contexts returns the security contexts of containers, by the field that the containers are in.
func contexts(spec *corev1.PodSpec) map[string][]*corev1.SecurityContext {
	found := map[string][]*corev1.SecurityContext{}
	for i := range spec.InitContainers {
		found["initContainers"] = append(found["initContainers"], spec.InitContainers[i].SecurityContext)
	}
	for i := range spec.Containers {
		found["containers"] = append(found["containers"], spec.Containers[i].SecurityContext)
	}
	for i := range spec.EphemeralContainers {
		found["ephemeralContainers"] = append(found["ephemeralContainers"], spec.EphemeralContainers[i].SecurityContext)
	}
	return found
}

// mergeContext puts into the field securityContext of a map what is different in updated.
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
	found, err := json.Marshal(of["securityContext"])
	if err != nil {
		return err
	}
	if of["securityContext"] == nil {
		found = []byte("{}")
	}
	merged, err := jsonpatch.MergePatch(found, difference)
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
