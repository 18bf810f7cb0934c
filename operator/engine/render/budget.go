package render

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// MaxVariantOverlays is how many overlays Variants combines.
const MaxVariantOverlays = 6

// A build takes kustomize about a microsecond for each pair of objects.
const (
	// maxPairs bounds the pairs of objects in all builds of a vetting, so that it takes a few seconds at most.
	maxPairs = 4 << 20
	// maxVariantPairs bounds them in the builds of Variants.
	maxVariantPairs = 1 << 18
)

// maxKinds bounds the kinds in a template, each of which is looked up and asked for.
const maxKinds = 64

// CheckBudget refuses a template that would take too long to vet: kustomize builds it once with each of its overlays.
func CheckBudget(template *v1alpha1.NamespaceTemplate) error {
	objects, overlays := len(template.Spec.Templates), len(template.Spec.Overlays)
	if kinds := len(KindsOf(Declarations(template))); kinds > maxKinds {
		return fmt.Errorf("it has objects of %d kinds, and may have %d: make more than one template of it", kinds,
			maxKinds)
	}
	if objects*objects*(1+2*overlays) > maxPairs {
		return fmt.Errorf("it has too many objects and overlays together, %d and %d: make more than one template of it",
			objects, overlays)
	}
	return nil
}

// ErrCombinations says that a template's overlays can't be built in every combination.
var ErrCombinations = errors.New("its overlays have too many combinations")

// CheckCombinations refuses a template that Variants would take too long to build. The error is ErrCombinations.
func CheckCombinations(template *v1alpha1.NamespaceTemplate) error {
	objects, overlays := len(template.Spec.Templates), len(template.Spec.Overlays)
	if overlays > MaxVariantOverlays {
		return fmt.Errorf("%w: there are more than %d overlays", ErrCombinations, MaxVariantOverlays)
	}
	if overlays > 0 && objects*objects<<overlays > maxVariantPairs {
		return fmt.Errorf("%w: there are %d overlays of %d objects", ErrCombinations, overlays, objects)
	}
	return nil
}

// storedSize estimates, rather too high, how many bytes an object takes with the managedFields of the operator.
func storedSize(object *unstructured.Unstructured) int {
	data, err := object.MarshalJSON()
	if err != nil {
		return 0 // it was read from JSON
	}
	return len(data) + ownedSize(object.Object)
}

// ownedSize estimates how many bytes managedFields take for a value: each key once more, and of lists the items by
// their keys.
func ownedSize(value any) int {
	const around = len(`"f:":{},`)
	size := 0
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			size += len(key) + around + ownedSize(field)
		}
	case []any:
		for _, item := range value {
			size += around + ownedSize(item)
			if fields, ok := item.(map[string]any); ok {
				for key, field := range fields {
					size += len(key) + scalarSize(field)
				}
			} else {
				size += scalarSize(item)
			}
		}
	}
	return size
}

func scalarSize(value any) int {
	switch value := value.(type) {
	case map[string]any, []any:
		return 0
	case string:
		return len(value)
	}
	return len(fmt.Sprint(value))
}
