package render

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// checkSelectors returns a problem for each missing or invalid selector, which would otherwise silently match nothing.
func checkSelectors(template *v1alpha1.NamespaceTemplate) []Problem {
	var problems []Problem
	if _, err := match.Selector(template.Spec.Namespaces); err != nil {
		problems = append(problems,
			Problem{Rule: ruleSelector, Path: "spec.namespaces", Message: err.Error()})
	}
	for i, overlay := range template.Spec.Overlays {
		if _, err := match.Selector(overlay.Namespaces); err != nil {
			problem := Problem{Rule: ruleSelector, Message: err.Error()}
			problems = append(problems, problem.inOverlay(Part{Overlays, i}, "namespaces", overlay.Name))
		}
	}
	if template.Spec.Rollout != nil {
		for i, wave := range template.Spec.Rollout.Waves {
			if _, err := metav1.LabelSelectorAsSelector(wave.Selector); err != nil {
				problems = append(problems, Problem{
					Rule: ruleSelector, Path: fmt.Sprintf("spec.rollout.waves[%d].selector", i), Message: err.Error(),
				})
			}
		}
	}
	return problems
}

// parseObjects decodes and checks the objects of a template as its author wrote them.
func parseObjects(template *v1alpha1.NamespaceTemplate) ([]*unstructured.Unstructured, []Problem) {
	var objects []*unstructured.Unstructured
	var problems []Problem
	seen := map[ObjectID]bool{}
	for i, raw := range template.Spec.Templates {
		object, invalid := parseObject(raw)
		for _, problem := range invalid {
			problems = append(problems, problem.in(Part{Objects, i}))
		}
		if len(invalid) > 0 {
			continue
		}
		id := IDOf(object)
		if seen[id] {
			duplicate := Problem{
				Rule: ruleDuplicate, Object: IDOf(object).String(), Message: "is declared twice",
				Remedy: "remove or rename one of them",
			}
			problems = append(problems, duplicate.in(Part{Objects, i}))
		}
		seen[id] = true
		objects = append(objects, object)
	}
	return objects, problems
}

// parseObject decodes and checks an object. The object is nil if it cannot be decoded.
func parseObject(raw runtime.RawExtension) (*unstructured.Unstructured, []Problem) {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw.Raw, &object.Object); err != nil {
		return nil, []Problem{{
			Rule: ruleSchema, Message: "is not an object", Remedy: "write the fields apiVersion, kind and metadata",
		}}
	}
	problems := checkDeclared(object)
	DropNulls(object.Object)
	return object, problems
}
