package render

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

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

// checkBudget refuses a template that kustomize would take too long to build once with each of its overlays.
func checkBudget(template *v1alpha1.NamespaceTemplate) error {
	objects, overlays := len(template.Spec.Templates), len(template.Spec.Overlays)
	if objects*objects*(1+2*overlays) > maxPairs {
		return fmt.Errorf("it has too many objects and overlays together, %d and %d: make more than one template of it", objects, overlays)
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

// Declaration is what is known of a template's object without compiling the template.
type Declaration struct {
	schema.GroupVersionKind
	Name string
	// Binds is the name of the Role that a RoleBinding refers to, or "".
	Binds string
}

// Declarations returns what a template declares, tokens and all. Overlays change none of it but Binds. What can't be read is left
// out: nobody populates it.
func Declarations(template *v1alpha1.NamespaceTemplate) []Declaration {
	declarations := make([]Declaration, 0, len(template.Spec.Templates))
	for _, raw := range template.Spec.Templates {
		var object struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name string `json:"name"`
			} `json:"metadata"`
			RoleRef any `json:"roleRef"`
		}
		if utiljson.Unmarshal(raw.Raw, &object) != nil {
			continue
		}
		declaration := Declaration{GroupVersionKind: schema.FromAPIVersionAndKind(object.APIVersion, object.Kind), Name: object.Metadata.Name}
		if ref, ok := object.RoleRef.(map[string]any); ok && declaration.GroupKind() == roleBindingKind && ref["kind"] == "Role" {
			declaration.Binds, _ = ref["name"].(string)
		}
		declarations = append(declarations, declaration)
	}
	return declarations
}

var roleBindingKind = schema.GroupKind{Group: rbacGroup, Kind: "RoleBinding"}

// KindsOf returns the kinds of declarations, each once.
func KindsOf(declarations []Declaration) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, declaration := range declarations {
		if !slices.Contains(kinds, declaration.GroupVersionKind) {
			kinds = append(kinds, declaration.GroupVersionKind)
		}
	}
	return kinds
}

// storedSize estimates, rather too high, how many bytes an object takes with the managedFields of the operator.
func storedSize(object *unstructured.Unstructured) int {
	data, err := object.MarshalJSON()
	if err != nil {
		return 0 // it was read from JSON
	}
	return len(data) + ownedSize(object.Object)
}

// ownedSize estimates how many bytes managedFields take for a value: each key once more, and of lists the items by their keys.
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
