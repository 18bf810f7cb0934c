package populate

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	patches "nstpl.dev/nstpl/operator/internal/patch"
)

// onlyImmutable is what Reduced keeps of the fields of another client that made an object immutable.
var onlyImmutable = metav1.NewFieldsV1(`{"f:immutable":{}}`)

// madeImmutableBy returns the manager that set the field immutable of a ConfigMap or Secret, or "". Such an object
// stays as it is, whatever the template declares later, until it is deleted.
func madeImmutableBy(object *Object, observed *metav1.PartialObjectMetadata) string {
	kind := object.ID().GroupKind
	if kind.Group != "" || kind.Kind != "ConfigMap" && kind.Kind != "Secret" || object.Object["immutable"] == true {
		return ""
	}
	for i := range observed.ManagedFields {
		if entry := &observed.ManagedFields[i]; !IsOwnEntry(entry) && ownsImmutable(entry) {
			return entry.Manager
		}
	}
	return ""
}

// isChangedByOthers reports whether another client wrote to an object whose change the API server refused, and not only
// to its status. That client may have removed its entry from managedFields. Then the refusal itself shows that it made
// the object immutable, unless nstpl did, or that it filled the object.
func isChangedByOthers(object *metav1.PartialObjectMetadata, refusal error) bool {
	entry := ownEntry(object)
	return isWrittenByOthers(object) || patches.IsTooLarge(refusal) || entry != nil && !ownsImmutable(entry) &&
		strings.Contains(refusal.Error(), "field is immutable when `immutable` is set")
}

// ownsImmutable reports whether a managedFields entry contains the field immutable of the object itself.
func ownsImmutable(entry *metav1.ManagedFieldsEntry) bool {
	if entry.FieldsV1 == nil || !strings.Contains(entry.FieldsV1.GetRawString(), `"f:immutable"`) {
		return false
	}
	owned, err := ownedFields(entry)
	_, owns := owned["f:immutable"]
	return err == nil && owns
}
