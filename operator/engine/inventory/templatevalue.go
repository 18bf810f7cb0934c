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
	declared, live *unstructured.Unstructured, declares func(render.MetadataKey, populate.RecordedValue) bool,
) (*unstructured.Unstructured, []TemplateValue) {
	if render.IDOf(declared).GroupKind != namespaceKind {
		return declared, nil
	}
	record := populate.RecordedMetadata(live.GetAnnotations())
	if len(record) == 0 {
		return declared, nil
	}
	left, current := metadataOf(declared), metadataOf(live)
	var values []TemplateValue
	for _, key := range slices.SortedFunc(maps.Keys(record), render.MetadataKey.Compare) {
		wanted, isDeclared := left[key.Field][key.Key]
		value, exists := current[key.Field][key.Key]
		if isDeclared && exists && wanted != value && record[key].IsIn(value) && declares(key, record[key]) {
			delete(left[key.Field], key.Key)
			values = append(values, TemplateValue{declared.GetName(), key, record[key].Template})
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

// WithoutTemplateValues returns a declared object as the tree applies it to a live one: a namespace without the labels
// and annotations that templates have set to other values.
func (s State) WithoutTemplateValues(declared, live *unstructured.Unstructured) *unstructured.Unstructured {
	applied, _ := withoutTemplateValues(declared, live, s.declares)
	return applied
}

// declares reports whether the template that a record names exists and still declares the label or the annotation.
func (s State) declares(key render.MetadataKey, recorded populate.RecordedValue) bool {
	template := s.Live[ID{GroupKind: templateKind, Name: recorded.Template}]
	_, isDeclared := declaredBy(template)[key]
	return isDeclared && template.GetUID() == recorded.UID
}

// declaredBy returns the labels and annotations of namespaces that a template declares. The template may be nil.
func declaredBy(object *unstructured.Unstructured) map[render.MetadataKey][]string {
	if object == nil {
		return nil
	}
	template := &v1alpha1.NamespaceTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, template); err != nil {
		return nil // the API server has validated it
	}
	return render.DeclaredMetadata(&template.Spec)
}

// mayHaveSet reports whether a change is one of a template that may have set labels or annotations of namespaces, and
// that may no longer declare some of them: the tree may set these then. After is nil if the template was deleted.
func mayHaveSet(before, after *unstructured.Unstructured) bool {
	if render.IDOf(before).GroupKind != templateKind {
		return false
	}
	set := declaredBy(before)
	return len(set) > 0 && !equality.Semantic.DeepEqual(set, declaredBy(after))
}
