package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/engine/populate"
)

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
