package fields_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/plugin/internal/fields"
)

func TestSinceReturnsTheFieldsThatOthersWroteAfterTheApply(t *testing.T) {
	t.Parallel()
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON([]byte(`{"apiVersion": "v1", "kind": "Service", "metadata": {"managedFields": [
		{"manager": "before", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:a": {}}}},
		{"manager": "nstpl", "operation": "Apply", "time": "2026-01-01T00:00:01Z", "fieldsV1": {"f:spec": {"f:b": {}}}},
		{"manager": "same", "operation": "Update", "time": "2026-01-01T00:00:01Z", "fieldsV1": {
			"f:metadata": {"f:annotations": {".": {}}, "f:finalizers": {"v:\"example.com/a\"": {}}}}},
		{"manager": "after", "operation": "Update", "time": "2026-01-01T00:00:02Z", "fieldsV1": {
			"f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:targetPort": {}}}, "f:list": {"i:1": {}}, "x": {}}}},
		{"manager": "status", "operation": "Update", "time": "2026-01-01T00:00:02Z", "subresource": "status",
			"fieldsV1": {"f:status": {}}},
		{"manager": "scaler", "operation": "Update", "time": "2026-01-01T00:00:02Z", "subresource": "scale",
			"fieldsV1": {"f:spec": {"f:replicas": {}}}},
		{"manager": "broken", "operation": "Update", "time": "2026-01-01T00:00:02Z", "fieldsV1": {}}]}}`)))
	var texts []string
	for _, owned := range fields.Since(object, "nstpl") {
		texts = append(texts, owned.Path.String()+" "+owned.Manager)
	}
	require.Equal(t, []string{
		"metadata.annotations same", "metadata.finalizers[example.com/a] same", "spec.list[1] after",
		"spec.ports[port=80].targetPort after", "spec.replicas scaler",
	}, texts)
	require.Empty(t, fields.Since(object, "other"), "who never applied the object")
}
