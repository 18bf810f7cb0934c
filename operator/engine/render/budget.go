package render

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// MaxVariantOverlays is the number of overlays that Variants combines at most.
const MaxVariantOverlays = 6

const (
	// maxValues is the number of values in one build, which then takes about 75 MiB of memory.
	maxValues = 1 << 17
	// maxKept is the number of values in all results of Vet, and in all those of Variants: about 25 MiB.
	maxKept = 1 << 18
	// maxSteps is the number of steps in a build, in all builds of Vet, and in all those of Variants, which then take
	// about five seconds at most.
	maxSteps = 5 << 20
	// maxKinds is the number of kinds in a template. Vetting discovers each kind, and checks the author's permissions
	// on it.
	maxKinds = 64
)

// CheckBudget returns an error if vetting a template would take too much memory or time: kustomize builds it once with
// each overlay.
func CheckBudget(template *v1alpha1.NamespaceTemplate) error {
	if kinds := len(KindsOf(Declarations(template))); kinds > maxKinds {
		return Problem{
			Rule:    ruleSize,
			Message: fmt.Sprintf("the template has objects of %d kinds, more than the allowed %d", kinds, maxKinds),
			Remedy:  "split it into several templates",
		}
	}
	objects := declaredSizes(template)
	values, steps := 0, len(objects)*len(objects)
	for i, overlay := range template.Spec.Overlays {
		built, _ := estimateBuild(objects, overlay) // Vet reports the problems of patches
		if problem, tooLarge := built.problem(); tooLarge {
			return problem.inOverlay(Part{Overlays, i}, "", overlay.Name)
		}
		values += built.values()
		steps += built.steps
	}
	if values > maxKept || steps > maxSteps {
		return Problem{
			Rule: ruleSize,
			Message: fmt.Sprintf("the template has too many objects and overlays together, %d and %d", len(objects),
				len(template.Spec.Overlays)),
			Remedy: "split it into several templates",
		}
	}
	return nil
}

// ErrCombinations reports that a template has too many overlays to build every combination of them.
var ErrCombinations = errors.New("the template's overlays have too many combinations")

// CheckCombinations returns an ErrCombinations if Variants would take too much memory or time.
func CheckCombinations(template *v1alpha1.NamespaceTemplate) error {
	if overlays := len(template.Spec.Overlays); overlays > MaxVariantOverlays {
		return fmt.Errorf("%w: there are more than %d overlays", ErrCombinations, MaxVariantOverlays)
	}
	objects := declaredSizes(template)
	values, steps := 0, 0
	for i, overlay := range template.Spec.Overlays {
		built, _ := estimateBuild(objects, overlay)
		objects = built.objects
		values += built.values() << i // the overlay is applied to every combination of those before
		steps += built.steps << i
	}
	if values > maxKept || steps > maxSteps {
		return fmt.Errorf("%w: there are %d overlays of %d objects", ErrCombinations, len(template.Spec.Overlays),
			len(objects))
	}
	return nil
}

// declaredSizes returns the sizes of the objects of a template without overlays. It omits what is not an object.
func declaredSizes(template *v1alpha1.NamespaceTemplate) []sized {
	var objects []*unstructured.Unstructured
	for _, raw := range template.Spec.Templates {
		object := &unstructured.Unstructured{}
		if utiljson.Unmarshal(raw.Raw, &object.Object) == nil {
			objects = append(objects, object)
		}
	}
	return sizesOf(objects)
}
