package populate

import (
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// reducer drops the metadata of listed objects that plans do not read, and shares what is equal in many namespaces.
type reducer struct {
	kind   schema.GroupVersionKind
	fields map[string]*metav1.FieldsV1
	labels map[string]map[string]string
}

func newReducer(kind schema.GroupVersionKind) *reducer {
	return &reducer{kind: kind, fields: map[string]*metav1.FieldsV1{}, labels: map[string]map[string]string{}}
}

// metadata returns the reduced metadata of an object.
func (r *reducer) metadata(full *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	reduced := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: unique.Make(full.Name).Value(), Namespace: unique.Make(full.Namespace).Value(), UID: full.UID,
		ResourceVersion: full.ResourceVersion, DeletionTimestamp: full.DeletionTimestamp, Finalizers: full.Finalizers,
		Labels: r.templateLabel(full), Annotations: map[string]string{},
	}}
	reduced.SetGroupVersionKind(r.kind)
	for _, key := range []string{v1alpha1.HashAnnotation, v1alpha1.AdoptedAnnotation, v1alpha1.UnownedAnnotation} {
		if value, ok := full.Annotations[key]; ok {
			reduced.Annotations[key] = unique.Make(value).Value()
		}
	}
	// Without an entry of nstpl, the fields of the other entries show whether another client set the label.
	isOwn := slices.ContainsFunc(full.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return IsOwnEntry(&e) })
	for i := range full.ManagedFields {
		entry := full.ManagedFields[i]
		entry.FieldsV1 = nil
		if !isOwn || IsOwnEntry(&entry) {
			entry.FieldsV1 = r.shared(full.ManagedFields[i].FieldsV1)
		}
		reduced.ManagedFields = append(reduced.ManagedFields, entry)
	}
	return reduced
}

func (r *reducer) templateLabel(full *metav1.PartialObjectMetadata) map[string]string {
	template, ok := full.Labels[v1alpha1.TemplateNameLabel]
	if !ok {
		return nil
	}
	if r.labels[template] == nil {
		r.labels[template] = map[string]string{v1alpha1.TemplateNameLabel: template}
	}
	return r.labels[template]
}

func (r *reducer) shared(fields *metav1.FieldsV1) *metav1.FieldsV1 {
	if fields == nil {
		return nil
	}
	raw := fields.GetRawString()
	if r.fields[raw] == nil {
		r.fields[raw] = fields
	}
	return r.fields[raw]
}
