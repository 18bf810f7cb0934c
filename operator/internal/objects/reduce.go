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

// reducer cuts metadata down to what a plan reads, and shares what is the same in thousands of namespaces: names,
// labels and field sets.
type reducer struct {
	kind schema.GroupVersionKind

	mu     sync.Mutex
	labels map[string]map[string]string
	record  map[book]map[string]string
	fields map[string]*metav1.FieldsV1
}

// book is what the annotations of this project say.
type book struct{ hash, adopted, unowned string }

func bookOf(object *metav1.PartialObjectMetadata) book {
	return book{
		hash:    object.Annotations[v1alpha1.HashAnnotation],
		adopted: object.Annotations[v1alpha1.AdoptedAnnotation],
		unowned: object.Annotations[v1alpha1.UnownedAnnotation],
	}
}

func newReducer(kind schema.GroupVersionKind) *reducer {
	return &reducer{
		kind:   kind,
		labels: map[string]map[string]string{},
		record:  map[book]map[string]string{},
		fields: map[string]*metav1.FieldsV1{},
	}
}

// reduce is a cache.TransformFunc.
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
			Labels:            r.label(full.Labels[v1alpha1.TemplateNameLabel]),
			Annotations:       r.book(bookOf(full)),
			Finalizers:        full.Finalizers,
			ManagedFields:     make([]metav1.ManagedFieldsEntry, 0, len(full.ManagedFields)),
		},
	}
	reduced.SetGroupVersionKind(r.kind)
	// Without an entry of this project, the others say whether somebody else put the label on the object.
	reset := full.Labels[v1alpha1.TemplateNameLabel] != "" &&
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
		if (populate.IsOwnEntry(entry) || reset) && entry.FieldsV1 != nil {
			kept.FieldsV1 = r.field(entry.FieldsV1)
		}
		reduced.ManagedFields = append(reduced.ManagedFields, kept)
	}
	return reduced
}

func shared(s string) string {
	return unique.Make(s).Value()
}

func (r *reducer) label(template string) map[string]string {
	if r.labels[template] == nil {
		r.labels[template] = map[string]string{v1alpha1.TemplateNameLabel: template}
	}
	return r.labels[template]
}

func (r *reducer) book(b book) map[string]string {
	if r.record[b] == nil {
		r.record[b] = map[string]string{v1alpha1.HashAnnotation: b.hash}
		if b.adopted != "" {
			r.record[b][v1alpha1.AdoptedAnnotation] = b.adopted
		}
		if b.unowned != "" {
			r.record[b][v1alpha1.UnownedAnnotation] = b.unowned
		}
	}
	return r.record[b]
}

func (r *reducer) field(fields *metav1.FieldsV1) *metav1.FieldsV1 {
	raw := fields.GetRawString()
	if r.fields[raw] == nil {
		r.fields[raw] = fields
	}
	return r.fields[raw]
}

// sameClaim reports whether what this project says and owns of an object is the same in both states.
func sameClaim(a, b *metav1.PartialObjectMetadata) bool {
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
