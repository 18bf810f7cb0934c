package fields_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/plugin/internal/fields"
)

const managed = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "finalizers": ["example.com/a"],
	"labels": {"example.com/team": "a"}, "managedFields": [
	{"manager": "nstpl", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {
		"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:selector": {}}}},
	{"manager": "kubectl-patch", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
		"f:metadata": {"f:labels": {".": {}, "f:example.com/team": {}}, "f:finalizers": {"v:\"example.com/a\"": {}}},
		"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:targetPort": {}}}}}},
	{"manager": "kubelet", "operation": "Update", "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1": {
		"f:spec": {"f:selector": {}}}},
	{"manager": "scaler", "operation": "Update", "subresource": "scale", "fieldsType": "FieldsV1", "fieldsV1": {
		"f:spec": {"f:replicas": {}}}},
	{"manager": "broken", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {}},
	{"manager": "forged", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {
		"f:ports": {"k:{\"port\":{}}": {}, "k:[]": {}, "k:": {}, "v:{}": {}, "x": {}}}}}
	]}, "spec": {"selector": {"app": "x"}, "ports": [
		{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080},
		{"name": "b", "port": 81, "protocol": "TCP"}]}}`

func TestManagers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		to   string
		path string
		want []string
	}{
		"a field of an item": {
			`{"spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 1},
				{"name": "b", "port": 81, "protocol": "TCP"}]}}`,
			"spec.ports[name=http].targetPort", []string{"kubectl-patch"},
		},
		"an item of several managers": {
			`{"spec": {"ports": [{"name": "b", "port": 81, "protocol": "TCP"}]}}`,
			"spec.ports[name=http]", []string{"kubectl-patch", "nstpl"},
		},
		"an item of no manager": {
			`{"spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]}}`,
			"spec.ports[name=b]", nil,
		},
		"below a map that is owned as a whole": {
			`{"spec": {"selector": {"app": "y"}}}`, "spec.selector.app", []string{"nstpl"},
		},
		"a label": {
			`{"metadata": {"labels": {"example.com/team": "b"}}}`, "metadata.labels[example.com/team]",
			[]string{"kubectl-patch"},
		},
		"an item of a set": {
			`{"metadata": {"finalizers": ["b"]}}`, "metadata.finalizers[example.com/a]", []string{"kubectl-patch"},
		},
		"a field that a subresource wrote": {`{"spec": {"replicas": 2}}`, "spec.replicas", []string{"scaler"}},
		"a field of no owner":              {`{"spec": {"type": "ClusterIP"}}`, "spec.type", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			live := &unstructured.Unstructured{Object: object(t, managed)}
			for _, change := range fields.Compare(live.Object, object(t, test.to)) {
				if change.Path.String() == test.path {
					require.Equal(t, test.want, fields.Managers(live, change.Path))
					return
				}
			}
			require.Fail(t, "no change of "+test.path)
		})
	}
}
