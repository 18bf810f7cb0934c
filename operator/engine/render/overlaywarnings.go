package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// overlayWarnings returns the patches and images of overlays that change no object: their names may be misspelled. If
// in doubt, because another overlay may change what they select, it omits them.
func overlayWarnings(template *v1alpha1.NamespaceTemplate, objects []*unstructured.Unstructured) []string {
	var warnings []string
	for i, overlay := range template.Spec.Overlays {
		part := Part{Overlays, i}
		for j, patch := range overlay.Patches {
			if patch.Target != nil && selectsNothing(template, patch.Target, objects) {
				warnings = append(warnings, fmt.Sprintf("%s.patches[%d].target: selects no object of the template, so the "+
					"patch changes nothing: correct the target, or remove the patch", part, j))
			}
		}
		for j, image := range overlay.Images {
			isUsed := func(o *unstructured.Unstructured) bool { return hasImage(o.Object, image.Name) }
			if !patchesMention(template, image.Name) && !slices.ContainsFunc(objects, isUsed) {
				warnings = append(warnings, fmt.Sprintf("%s.images[%d].name: no container of the template has the image %s, "+
					"so the overlay changes no image: write the name without tag and digest", part, j, image.Name))
			}
		}
	}
	return warnings
}

// selectsNothing reports whether the target of a patch selects none of the objects, whatever other overlays change.
func selectsNothing(
	template *v1alpha1.NamespaceTemplate, target *v1alpha1.PatchTarget, objects []*unstructured.Unstructured,
) bool {
	if patternOf(target) > maxPattern {
		return false // applyOverlay reports it
	}
	selector, err := types.NewSelectorRegex(selectorOf(target))
	if err != nil {
		return false // kustomize reports it
	}
	mayHaveLabels := selecting(template, target.LabelSelector, Labels)
	mayHaveAnnotations := selecting(template, target.AnnotationSelector, Annotations)
	return !slices.ContainsFunc(objects, func(object *unstructured.Unstructured) bool {
		return selector.MatchGvk(gvkOf(object)) && selector.MatchName(object.GetName()) &&
			mayHaveLabels(object.GetLabels()) && mayHaveAnnotations(object.GetAnnotations())
	})
}

// selecting returns whether a selector selects labels or annotations of an object, or may do so with an overlay.
func selecting(template *v1alpha1.NamespaceTemplate, selector, field string) func(values map[string]string) bool {
	parsed, err := labels.Parse(selector)
	mayChange := err != nil || patchesMention(template, field) ||
		slices.ContainsFunc(template.Spec.Overlays, func(o v1alpha1.Overlay) bool {
			return len(o.Labels)+len(o.Annotations) > 0
		})
	return func(values map[string]string) bool { return mayChange || parsed.Matches(labels.Set(values)) }
}

func patchesMention(template *v1alpha1.NamespaceTemplate, text string) bool {
	return slices.ContainsFunc(template.Spec.Overlays, func(o v1alpha1.Overlay) bool {
		return slices.ContainsFunc(o.Patches, func(p v1alpha1.Patch) bool { return strings.Contains(p.Patch, text) })
	})
}

// hasImage reports whether a value has a field image with a name, with or without a tag or a digest.
func hasImage(value any, name string) bool {
	for inside := range within(value) {
		fields, _ := inside.(map[string]any)
		image, hasImage := fields["image"].(string)
		rest, found := strings.CutPrefix(image, name)
		if hasImage && found && (rest == "" || rest[0] == ':' || rest[0] == '@') {
			return true
		}
	}
	return false
}
