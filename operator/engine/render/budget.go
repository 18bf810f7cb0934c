package render

import (
	"errors"
	"fmt"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// MaxVariantOverlays is the number of overlays that Variants combines at most.
const MaxVariantOverlays = 6

// The time of a build grows with the square of the number of objects: about a microsecond for each pair.
const (
	// maxPairs is the number of pairs in all builds of Vet, which then takes a few seconds at most.
	maxPairs = 4 << 20
	// maxVariantPairs is the number of pairs in all builds of Variants.
	maxVariantPairs = 1 << 18
)

// maxKinds is the number of kinds in a template. Vetting discovers each kind, and checks the author's permissions on
// it.
const maxKinds = 64

// CheckBudget returns an error if vetting a template would take too long: kustomize builds it once with each overlay.
func CheckBudget(template *v1alpha1.NamespaceTemplate) error {
	objects, overlays := len(template.Spec.Templates), len(template.Spec.Overlays)
	if kinds := len(KindsOf(Declarations(template))); kinds > maxKinds {
		return fmt.Errorf("the template has objects of %d kinds, more than the allowed %d: split it into several templates", kinds,
			maxKinds)
	}
	if objects*objects*(1+2*overlays) > maxPairs {
		return fmt.Errorf("the template has too many objects and overlays together, %d and %d: split it into several templates",
			objects, overlays)
	}
	return nil
}

// ErrCombinations reports that a template has too many overlays to build every combination of them.
var ErrCombinations = errors.New("the template's overlays have too many combinations")

// CheckCombinations returns an ErrCombinations if Variants would take too long.
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
