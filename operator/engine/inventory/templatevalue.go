package inventory

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// TemplateValue is a label or an annotation of a namespace that a template has set to another value than the tree
// declares. The value of the template stays: if the tree replaced it, the operator would set it again, without end.
type TemplateValue struct {
	Namespace string
	render.MetadataKey
	// Template is the name of the template.
	Template string
}

// withoutTemplateValues returns a declared namespace without the labels and annotations that templates have set to
// other values, and these. The template is asked, too, since what it no longer declares may remain on the namespace.
func withoutTemplateValues(
	declared, live *unstructured.Unstructured, declares func(TemplateValue, populate.RecordedValue) bool,
) (*unstructured.Unstructured, []TemplateValue) {
	if IDOf(declared).GroupKind != namespaceKind {
		return declared, nil
	}
	record := populate.RecordedMetadata(live.GetAnnotations())
	if len(record) == 0 {
		return declared, nil
	}
	left := map[string]map[string]string{
		render.Labels: declared.GetLabels(), render.Annotations: declared.GetAnnotations(),
	}
	current := map[string]map[string]string{render.Labels: live.GetLabels(), render.Annotations: live.GetAnnotations()}
	var values []TemplateValue
	for _, key := range slices.SortedFunc(maps.Keys(record), render.MetadataKey.Compare) {
		wanted, isDeclared := left[key.Field][key.Key]
		value, exists := current[key.Field][key.Key]
		set := TemplateValue{declared.GetName(), key, record[key].Template}
		if isDeclared && exists && wanted != value && record[key].IsIn(value) && declares(set, record[key]) {
			delete(left[key.Field], key.Key)
			values = append(values, set)
		}
	}
	if len(values) == 0 {
		return declared, nil
	}
	declared = declared.DeepCopy()
	declared.SetLabels(left[render.Labels])
	declared.SetAnnotations(left[render.Annotations])
	return declared, values
}

// declares reports whether the template that a record names exists and still declares the label or the annotation.
func (s State) declares(value TemplateValue, recorded populate.RecordedValue) bool {
	live := s.Live[ID{templateKind, recorded.Template}]
	if live == nil || live.GetUID() != recorded.UID {
		return false
	}
	template := &v1alpha1.NamespaceTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, template); err != nil {
		return false
	}
	_, isDeclared := render.DeclaredMetadata(&template.Spec)[value.MetadataKey]
	return isDeclared
}

// mayHaveSet reports whether a change is one of a template that may have set labels or annotations of namespaces, and
// that may no longer declare some of them: the tree may set these then.
func mayHaveSet(before, after *unstructured.Unstructured) bool {
	if IDOf(before).GroupKind != templateKind {
		return false
	}
	set := metadataFields(before)
	return len(set) > 0 && (after == nil || !equality.Semantic.DeepEqual(set, metadataFields(after)))
}

// metadataFields returns the declarations of labels and annotations in a template and its overlays.
func metadataFields(template *unstructured.Unstructured) []any {
	var all []any
	add := func(fields map[string]any) {
		if declared := fields["namespaceMetadata"]; declared != nil {
			all = append(all, declared)
		}
	}
	spec, _ := template.Object["spec"].(map[string]any)
	add(spec)
	overlays, _ := spec["overlays"].([]any)
	for i := range overlays {
		overlay, _ := overlays[i].(map[string]any)
		add(overlay)
	}
	return all
}
