package schema

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	strictjson "sigs.k8s.io/json"

	"nstpl.dev/nstpl/operator/engine/quantities"
)

// decodeObject returns the object in JSON, or an empty object.
func decodeObject(data []byte) map[string]any {
	object := map[string]any{}
	if utiljson.Unmarshal(data, &object) != nil || object == nil {
		return map[string]any{}
	}
	return object
}

// isAboutTypes reports whether a problem is about a field that does not exist or a value of a wrong type, which a
// decoder detects.
func isAboutTypes(p Problem) bool {
	return p.Message == unknownField || strings.HasPrefix(p.Message, "must be ") &&
		strings.Contains(p.Message, ", not ") ||
		strings.HasSuffix(p.Message, "out of range") || strings.Contains(p.Message, "base64")
}

// requireAgreement compares Check with a strict decoder.
func requireAgreement(t *testing.T, catalog *Catalog, object map[string]any) {
	t.Helper()
	encoded, err := json.Marshal(object)
	require.NoError(t, err)
	kind := schema.FromAPIVersionAndKind(object["apiVersion"].(string), object["kind"].(string))
	strict, err := strictjson.UnmarshalStrict(encoded, reflect.New(scheme.Scheme.AllKnownTypes()[kind]).Interface())
	var found []Problem
	for _, problem := range catalog.Check(object) {
		if isAboutTypes(problem) {
			found = append(found, problem)
		}
	}
	if err != nil || len(strict) > 0 {
		require.NotEmpty(t, found, "%s: %v %v", encoded, err, strict)
	} else {
		require.Empty(t, found, "%s", encoded)
	}
}

// odd are values of all types.
var odd = []any{
	nil, true, int64(5), int64(3000000000), int64(-1), 1.5, "five", "5", "", "2GB", "100%", []any{}, []any{"a"},
	[]any{nil},
	[]any{int64(300)}, map[string]any{}, map[string]any{"a": "b"}, map[string]any{"name": int64(1)},
}

// mutate calls visit with the object after each of many changes: each value in it is replaced, renamed and removed in
// turn. Value is a value of the object.
func mutate(value any, visit func()) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range maps.Clone(value) {
			mutate(field, visit)
			if key == "apiVersion" || key == "kind" && value["metadata"] != nil {
				continue
			}
			for _, replacement := range odd {
				value[key] = replacement
				visit()
			}
			delete(value, key)
			for _, name := range []string{key + "s", strings.ToUpper(key), key[:len(key)-1]} {
				value[name] = field
				visit()
				delete(value, name)
			}
			visit()
			value[key] = field
		}
	case []any:
		for i, item := range value {
			mutate(item, visit)
			for _, replacement := range odd {
				value[i] = replacement
				visit()
			}
			value[i] = item
		}
	}
}

func TestCheckAgreesWithAStrictDecoder(t *testing.T) {
	catalog, err := New()
	require.NoError(t, err)
	for _, text := range []string{
		`{"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "a", "labels": {"a": "b"}}, "spec":
			{"hard": {"pods": 5}, "scopes": ["BestEffort"], "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass",
			"operator": "In", "values": ["a"]}]}}}`,
		`{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "a"}, "spec": {"limits": [{"type": "Container",
			"max": {"cpu": "1"}}]}}`,
		`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "creationTimestamp": null,
			"ownerReferences": [{"controller": true, "kind": "a"}]}, "type": "Opaque", "immutable": true, "data":
			{"a": "eA=="}, "stringData": {"b": "c"}}`,
		`{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a", "generation": 1, "creationTimestamp":
			"2024-01-31T12:00:00Z"}, "secrets": [{"name": "a"}], "automountServiceAccountToken": false}`,
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"terminationGracePeriodSeconds": 1,
			"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}], "env": [{"name": "a",
			"valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}], "readinessProbe": {"httpGet": {"port": "http"}},
			"resources": {"limits": {"cpu": 1}}}], "volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}]}}`,
		`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": {"podSelector":
			{"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"], "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8",
			"except": ["10.1.0.0/16"]}}], "ports": [{"port": 80, "endPort": 90, "protocol": "TCP"}]}]}}`,
		`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "a"}, "rules": [{"apiGroups":
			[""], "resources": ["pods"], "verbs": ["get"]}]}`,
		`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef":
			{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}, "subjects": [{"kind": "User", "name": "a"}]}`,
		`{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"}, "spec": {"minAvailable": "50%",
			"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}}`,
	} {
		object := decodeObject([]byte(text))
		require.Empty(t, catalog.Check(object), "%s", text)
		mutate(object, func() { requireAgreement(t, catalog, object) })
		require.Empty(t, catalog.Check(object), "mutate restores the object")
	}
}

// Check never panics, and detects every unknown field and every wrong type that a strict decoder detects, and no
// others.
func FuzzCheck(f *testing.F) {
	kinds := []schema.GroupVersionKind{
		{Version: "v1", Kind: "ResourceQuota"},
		{Version: "v1", Kind: "LimitRange"},
		{Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "Pod"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	}
	for i, fields := range []string{
		`{"spec": {"hard": {"pods": 5, "cpu": "five", "memory": null, "a": true}, "Hard": {}, "scopes": "x"}}`,
		`{"spec": {"limits": [{"type": "Container", "default": {"cpu": 1}}, null, 5]}}`,
		`{"data": {"a": "eA==", "b": "%", "c": [1, 2], "d": [300]}, "immutable": "yes"}`,
		`{"spec": {"terminationGracePeriodSeconds": 1.5, "containers": [{"ports": [{"containerPort": 3000000000}]}]}}`,
		`{"metadata": {"creationTimestamp": "x", "generation": 1.0}, "spec": {"ingress": [{"ports": [{"port": 1.5}]}]}}`,
		`{"rules": [{"verbs": ["get"], "apiGroups": [null]}]}`,
		`{"roleRef": [], "subjects": [{"kind": 5}]}`,
		`{"spec": {"minAvailable": 99999999999, "maxUnavailable": "50%"}}`,
		`{"spec": {"hard": {"pods": "1e999999999", "cpu": "1e-999999999"}, "limits": [{"max": {"cpu": "e999999999"}}]}}`,
	} {
		f.Add(uint8(i), []byte(fields))
	}
	catalog, err := New()
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		object := decodeObject(data)
		object["apiVersion"], object["kind"] = kinds[int(kind)%len(kinds)].ToAPIVersionAndKind()
		if quantities.CheckObject(&unstructured.Unstructured{Object: object}) != nil {
			require.NotEmpty(t, catalog.Check(object))
			return // the decoder would take minutes
		}
		requireAgreement(t, catalog, object)
	})
}
