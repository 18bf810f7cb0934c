package objects

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reduce"
)

// reducer removes the metadata that plans do not read, and shares equal names, labels, annotations and field sets,
// which are the same in thousands of namespaces.
type reducer struct {
	kind metav1.TypeMeta

	mu          sync.Mutex
	labels      reduce.Table[string, map[string]string]
	annotations reduce.Table[record, map[string]string]
	fields      reduce.Table[string, *metav1.FieldsV1]
	entries     reduce.Table[entry, []metav1.ManagedFieldsEntry]
}

// record holds the values of the annotations by which nstpl records the state of an object.
type record struct{ hash, adopted, unowned string }

// entry identifies managedFields of one entry. Objects that were applied in the same second share them.
type entry struct {
	manager, subresource string
	operation            metav1.ManagedFieldsOperationType
	seconds              int64
	fields               *metav1.FieldsV1
}

func recordOf(object *metav1.PartialObjectMetadata) record {
	return record{
		hash:    object.Annotations[v1alpha1.HashAnnotation],
		adopted: object.Annotations[v1alpha1.AdoptedAnnotation],
		unowned: object.Annotations[v1alpha1.UnownedAnnotation],
	}
}

func newReducer(kind schema.GroupVersionKind) *reducer {
	apiVersion, name := kind.ToAPIVersionAndKind()
	return &reducer{kind: metav1.TypeMeta{APIVersion: apiVersion, Kind: name}}
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
	return &metav1.PartialObjectMetadata{
		TypeMeta: r.kind,
		ObjectMeta: metav1.ObjectMeta{
			Name:              reduce.Shared(full.Name),
			Namespace:         reduce.Shared(full.Namespace),
			UID:               full.UID,
			ResourceVersion:   full.ResourceVersion,
			DeletionTimestamp: full.DeletionTimestamp,
			Labels:            r.labelsOf(full.Labels[v1alpha1.TemplateNameLabel]),
			Annotations:       r.annotationsOf(recordOf(full)),
			Finalizers:        full.Finalizers,
			ManagedFields:     r.managedFieldsOf(full),
		},
	}
}

func (r *reducer) managedFieldsOf(full *metav1.PartialObjectMetadata) []metav1.ManagedFieldsEntry {
	// Without an entry of nstpl, the fields of the other entries show whether another client set the label.
	isReset := full.Labels[v1alpha1.TemplateNameLabel] != "" &&
		!slices.ContainsFunc(full.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return populate.IsOwnEntry(&entry)
		})
	reduced := make([]metav1.ManagedFieldsEntry, 0, len(full.ManagedFields))
	for i := range full.ManagedFields {
		entry := &full.ManagedFields[i]
		kept := metav1.ManagedFieldsEntry{
			Manager: reduce.Shared(entry.Manager), Operation: entry.Operation,
			Subresource: reduce.Shared(entry.Subresource),
		}
		if populate.IsOwnEntry(entry) {
			kept.Time = entry.Time
		}
		if (populate.IsOwnEntry(entry) || isReset) && entry.FieldsV1 != nil {
			kept.FieldsV1 = r.fieldsOf(entry.FieldsV1)
		}
		reduced = append(reduced, kept)
	}
	if len(reduced) != 1 {
		return reduced
	}
	only := &reduced[0]
	key := entry{manager: only.Manager, subresource: only.Subresource, operation: only.Operation, fields: only.FieldsV1}
	if only.Time != nil {
		key.seconds = only.Time.Unix() // the API server stores whole seconds
	}
	return r.entries.Value(key, func() []metav1.ManagedFieldsEntry { return reduced })
}

func (r *reducer) labelsOf(template string) map[string]string {
	return r.labels.Value(template, func() map[string]string {
		return map[string]string{v1alpha1.TemplateNameLabel: reduce.Shared(template)}
	})
}

func (r *reducer) annotationsOf(rec record) map[string]string {
	return r.annotations.Value(rec, func() map[string]string {
		annotations := map[string]string{v1alpha1.HashAnnotation: rec.hash}
		if rec.adopted != "" {
			annotations[v1alpha1.AdoptedAnnotation] = rec.adopted
		}
		if rec.unowned != "" {
			annotations[v1alpha1.UnownedAnnotation] = rec.unowned
		}
		return annotations
	})
}

func (r *reducer) fieldsOf(fields *metav1.FieldsV1) *metav1.FieldsV1 {
	return r.fields.Value(fields.GetRawString(), func() *metav1.FieldsV1 { return fields })
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
