package render

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// checkSelectors returns an error for each missing or invalid selector, which would otherwise silently match nothing.
func checkSelectors(template *v1alpha1.NamespaceTemplate) error {
	_, err := match.Selector(template.Spec.Namespaces)
	errs := []error{err}
	for _, overlay := range template.Spec.Overlays {
		if _, err := match.Selector(overlay.Namespaces); err != nil {
			errs = append(errs, fmt.Errorf("overlay %s: %w", overlay.Name, err))
		}
	}
	if template.Spec.Rollout != nil {
		for i, wave := range template.Spec.Rollout.Waves {
			if _, err := metav1.LabelSelectorAsSelector(wave.Selector); err != nil {
				errs = append(errs, fmt.Errorf("spec.rollout.waves[%d].selector: %w", i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// parseObjects decodes and checks the objects of a template as its author wrote them.
func parseObjects(template *v1alpha1.NamespaceTemplate) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	var errs []error
	seen := map[identity]bool{}
	for i, raw := range template.Spec.Templates {
		object, err := parseObject(raw)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.templates[%d]: %w", i, err))
			continue
		}
		id := identityOf(object)
		if seen[id] {
			errs = append(errs, fmt.Errorf("spec.templates[%d]: %s is declared twice", i, id))
		}
		seen[id] = true
		objects = append(objects, object)
	}
	return objects, errors.Join(errs...)
}

func parseObject(raw runtime.RawExtension) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(raw.Raw, &object.Object); err != nil {
		return nil, err
	}
	return object, checkDeclared(object)
}
