package populate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// recordKey is the annotation with the record.
var recordKey = render.MetadataKey{Field: render.Annotations, Key: v1alpha1.NamespaceMetadataAnnotation}

// depthsKey is the entry of the record for the depth labels of a namespace that was moved.
var depthsKey = render.MetadataKey{Field: "policySpaces", Key: "depths"}

// MetadataRecord records which labels and annotations of a namespace templates have set, and the depth labels with
// which it was moved while it was open. The write that sets them also writes the record, into
// NamespaceMetadataAnnotation, which admission protects.
type MetadataRecord map[render.MetadataKey]RecordedValue

// RecordedValue is a label or an annotation in the record.
type RecordedValue struct {
	// Template and UID are those of the template that declared the value. Depth labels have none.
	Template string    `json:"template,omitempty"`
	UID      types.UID `json:"uid,omitempty"`
	// Value is a digest of the value that was set. A value with another digest was set by another client.
	Value string `json:"value"`
	// Existed is true if the label or the annotation existed before, so that it is never removed.
	Existed bool `json:"existed,omitempty"`
}

// NewRecordedValue returns the record of a value that a template declares.
func NewRecordedValue(template string, uid types.UID, value string) RecordedValue {
	return RecordedValue{Template: template, UID: uid, Value: digest(value)}
}

// IsIn reports whether a label or an annotation still has the recorded value.
func (r RecordedValue) IsIn(value string) bool { return r.Value == digest(value) }

// isValueOf reports whether a namespace still has the recorded value.
func (r RecordedValue) isValueOf(ns *corev1.Namespace, key render.MetadataKey) bool {
	value, exists := valueIn(ns, key)
	return exists && r.IsIn(value)
}

func (r RecordedValue) isOf(template *v1alpha1.NamespaceTemplate) bool {
	return r.Template == template.Name && r.UID == template.UID
}

// storedRecord is the record as JSON: the values by field, and then by key.
type storedRecord map[string]map[string]RecordedValue

// String returns the record as RecordedMetadata reads it. Go sorts the keys.
func (r MetadataRecord) String() string {
	stored := storedRecord{}
	for key, value := range r {
		if stored[key.Field] == nil {
			stored[key.Field] = map[string]RecordedValue{}
		}
		stored[key.Field][key.Key] = value
	}
	data, err := json.Marshal(stored)
	if err != nil {
		return "" // cannot happen: there are only strings in it
	}
	return string(data)
}

// RecordedMetadata returns the record among the annotations of a namespace. It is empty if the record is missing or
// invalid: then all values count as those of other clients.
func RecordedMetadata(annotations map[string]string) MetadataRecord {
	text := annotations[v1alpha1.NamespaceMetadataAnnotation]
	stored := storedRecord{}
	if text == "" || json.Unmarshal([]byte(text), &stored) != nil {
		return nil
	}
	record := MetadataRecord{}
	for _, field := range []string{render.Labels, render.Annotations, depthsKey.Field} {
		for key, value := range stored[field] {
			record[render.MetadataKey{Field: field, Key: key}] = value
		}
	}
	return record
}

// WithDepths returns the record among the annotations of a namespace with other depth labels, as text. Every move of an
// open namespace changes it, so a write on which an earlier leader decided before a move is refused after it: see
// UnlessRecorded. The write cannot test that the namespace has no depth labels that this leader does not know.
func WithDepths(annotations map[string]string, depths string) string {
	record := MetadataRecord{}
	maps.Copy(record, RecordedMetadata(annotations))
	record[depthsKey] = RecordedValue{Value: digest(depths)}
	return record.String()
}

// digest returns a digest of a value. 64 bits suffice to notice that another client changed the value.
func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:8])
}
