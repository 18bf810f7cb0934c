package objects

import (
	"slices"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// reducer removes the metadata that plans do not read, and shares equal names, labels, annotations and field sets,
// which are the same in thousands of namespaces.
type reducer struct {
	kind schema.GroupVersionKind

	mu          sync.Mutex
	labels      map[string]map[string]string
	annotations map[record]map[string]string
	fields      map[string]*metav1.FieldsV1
}

// record holds the values of the annotations by which nstpl records the state of an object.
type record struct{ hash, adopted, unowned string }

func recordOf(object *metav1.PartialObjectMetadata) record {
	return record{
		hash:    object.Annotations[v1alpha1.HashAnnotation],
		adopted: object.Annotations[v1alpha1.AdoptedAnnotation],
		unowned: object.Annotations[v1alpha1.UnownedAnnotation],
	}
}

func newReducer(kind schema.GroupVersionKind) *reducer {
	return &reducer{
		kind:        kind,
		labels:      map[string]map[string]string{},
		annotations: map[record]map[string]string{},
		fields:      map[string]*metav1.FieldsV1{},
	}
}

// reduce is a cache.TransformFunc that reduces metadata.
func (r *reducer) reduce(object any) (any, error) {
	full, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return r.metadata(full), nil
}

func (r *reducer) metadata(full *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	r.mu.Lock()
	defer r.mu.Unlock()
	reduced := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{
			Name:              shared(full.Name),
			Namespace:         shared(full.Namespace),
			UID:               full.UID,
			ResourceVersion:   full.ResourceVersion,
			DeletionTimestamp: full.DeletionTimestamp,
			Labels:            r.labelsOf(full.Labels[v1alpha1.TemplateNameLabel]),
			Annotations:       r.annotationsOf(recordOf(full)),
			Finalizers:        full.Finalizers,
			ManagedFields:     make([]metav1.ManagedFieldsEntry, 0, len(full.ManagedFields)),
		},
	}
	reduced.SetGroupVersionKind(r.kind)
	// Without an entry of nstpl, the fields of the other entries show whether another client set the label.
	isReset := full.Labels[v1alpha1.TemplateNameLabel] != "" &&
		!slices.ContainsFunc(full.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return populate.IsOwnEntry(&entry)
		})
	for i := range full.ManagedFields {
		entry := &full.ManagedFields[i]
		kept := metav1.ManagedFieldsEntry{
			Manager: shared(entry.Manager), Operation: entry.Operation, Subresource: shared(entry.Subresource),
		}
		if populate.IsOwnEntry(entry) {
			kept.Time = entry.Time
		}
		if (populate.IsOwnEntry(entry) || isReset) && entry.FieldsV1 != nil {
			kept.FieldsV1 = r.fieldsOf(entry.FieldsV1)
		}
		reduced.ManagedFields = append(reduced.ManagedFields, kept)
	}
	return reduced
}

func shared(s string) string {
	return unique.Make(s).Value()
}

func (r *reducer) labelsOf(template string) map[string]string {
	if r.labels[template] == nil {
		r.labels[template] = map[string]string{v1alpha1.TemplateNameLabel: template}
	}
	return r.labels[template]
}

func (r *reducer) annotationsOf(rec record) map[string]string {
	if r.annotations[rec] == nil {
		r.annotations[rec] = map[string]string{v1alpha1.HashAnnotation: rec.hash}
		if rec.adopted != "" {
			r.annotations[rec][v1alpha1.AdoptedAnnotation] = rec.adopted
		}
		if rec.unowned != "" {
			r.annotations[rec][v1alpha1.UnownedAnnotation] = rec.unowned
		}
	}
	return r.annotations[rec]
}

func (r *reducer) fieldsOf(fields *metav1.FieldsV1) *metav1.FieldsV1 {
	raw := fields.GetRawString()
	if r.fields[raw] == nil {
		r.fields[raw] = fields
	}
	return r.fields[raw]
}

// sameRecord reports whether the records of nstpl and its owned fields are the same in two states of an object.
func sameRecord(a, b *metav1.PartialObjectMetadata) bool {
	return populate.SameRecord(a, b) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		ownFields(a) == ownFields(b) && !populate.Rewritten(a, b)
}

func ownFields(object *metav1.PartialObjectMetadata) string {
	for i := range object.ManagedFields {
		if entry := &object.ManagedFields[i]; populate.IsOwnEntry(entry) && entry.FieldsV1 != nil {
			return entry.FieldsV1.GetRawString()
		}
	}
	return ""
}
