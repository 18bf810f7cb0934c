package render

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func compiledOf(t testing.TB, objects ...string) *Compiled {
	t.Helper()
	compiled, err := Compile(t.Context(), templateOf(t, objects...), nil)
	require.NoError(t, err)
	return compiled
}

func TestStampSetsTheNamespaceAndTheLabel(t *testing.T) {
	for _, name := range []string{"policies", "0123", "null", "true", "1e3", "on", "a.b", strings.Repeat("n", 63)} {
		t.Run(name, func(t *testing.T) {
			template := templateOf(t, configMap, roleBinding, deployment, networkPolicy,
				"{apiVersion: example.dev/v1, kind: Unheard, metadata: {name: a, labels: null, annotations: null}}",
				"{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: a}, spec: {path: ./deploy}}")
			template.Name = name
			objects := declared(t, template)
			require.Len(t, objects, 6)
			for _, object := range objects {
				require.Equal(t, "team-a", object.GetNamespace())
				require.Equal(t, name, object.GetLabels()[v1alpha1.TemplateNameLabel])
			}
			require.Equal(t, map[string]any{"app": "gate"},
				objects[2].Object["spec"].(map[string]any)["selector"].(map[string]any)["matchLabels"])
		})
	}
}

func TestStampKeepsTheTemplatesOrder(t *testing.T) {
	var sources []string
	for i := range 60 {
		kind := []string{"ConfigMap", "Secret", "ServiceAccount"}[i%3]
		sources = append(sources, fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: object-%d}}", kind, 60-i))
	}
	objects := declared(t, templateOf(t, sources...))
	require.Len(t, objects, 60)
	for i, object := range objects {
		require.Equal(t, fmt.Sprintf("object-%d", 60-i), object.GetName())
	}
}

func TestStampReplacesTokensInValuesOnly(t *testing.T) {
	compiled := compiledOf(t, `
apiVersion: example.dev/v1
kind: Thing
metadata:
  name: $(NAMESPACE)-thing
  labels: {team: $(NAMESPACE)}
  annotations: {by: "<$(CREATOR)>"}
spec:
  list: [$(CREATOR), {deep: [[$$(CREATOR)]]}]
  command: [sh, -c, "echo $(FOO) ${BAR} $$ $(CREATOR)"]
  number: 9007199254740993
  float: 0.5
  true: true
  none: null
  empty: {}
  list2: []
`)
	for _, creator := range []string{"alice", `a"b'c: d`, "a\nb:\n- c", "$(NAMESPACE)", "$$(NAMESPACE)", "漢字", "\x01\x7f\u0085\u2028\ufeff", strings.Repeat("n", 1024)} {
		t.Run(creator[:min(len(creator), 20)], func(t *testing.T) {
			objects, omitted, err := compiled.Stamp(Values{Namespace: "team-a", Creator: creator})
			require.NoError(t, err)
			require.Empty(t, omitted)
			require.Equal(t, map[string]any{
				"apiVersion": "example.dev/v1",
				"kind":       "Thing",
				"metadata": map[string]any{
					"name": "team-a-thing", "namespace": "team-a",
					"labels":      map[string]any{"team": "team-a", v1alpha1.TemplateNameLabel: "policies"},
					"annotations": map[string]any{"by": "<" + creator + ">"},
				},
				"spec": map[string]any{
					"list":    []any{creator, map[string]any{"deep": []any{[]any{"$(CREATOR)"}}}},
					"command": []any{"sh", "-c", "echo $(FOO) ${BAR} $$ " + creator},
					"number":  int64(9007199254740993),
					"float":   0.5,
					"true":    true,
					"none":    nil,
					"empty":   map[string]any{},
					"list2":   []any{},
				},
			}, objects[0].Object)
		})
	}
}

func TestStampDoesNotChangeTheCompiledTemplate(t *testing.T) {
	compiled := compiledOf(t, roleBinding, "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {a: YQ==}, stringData: {b: $(CREATOR)}}")
	first, _, err := compiled.Stamp(Values{Namespace: "team-a", Creator: "alice"})
	require.NoError(t, err)
	for _, object := range first {
		object.SetName("changed")
		object.SetLabels(map[string]string{"changed": "yes"})
		delete(object.Object, "subjects")
	}
	second, _, err := compiled.Stamp(Values{Namespace: "team-b", Creator: "bob"})
	require.NoError(t, err)
	require.Equal(t, "creator", second[0].GetName())
	require.Equal(t, "policies", second[0].GetLabels()[v1alpha1.TemplateNameLabel])
	require.Equal(t, "bob", second[0].Object["subjects"].([]any)[0].(map[string]any)["name"])
	require.Equal(t, map[string]any{"a": "YQ==", "b": "Ym9i"}, second[1].Object["data"])
}

func TestStampOmitsObjectsThatNeedAnUnknownCreator(t *testing.T) {
	compiled := compiledOf(t, configMap, roleBinding, "{apiVersion: v1, kind: Secret, metadata: {name: for-$(CREATOR)}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: literal}, data: {a: $$(CREATOR)}}")
	objects, omitted, err := compiled.Stamp(Values{Namespace: "team-a"})
	require.NoError(t, err)
	require.Len(t, objects, 2)
	require.Equal(t, "settings", objects[0].GetName())
	require.Equal(t, "literal", objects[1].GetName())
	reason := "it names the namespace's creator, who is not known"
	require.Equal(t, []Omission{
		{"policies", schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}, "creator", reason},
		{"policies", schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, "for-$(CREATOR)", reason},
	}, omitted)
}

func TestStampRejectsTwoObjectsOfTheSameName(t *testing.T) {
	compiled := compiledOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: team-a}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: $(NAMESPACE)}}")
	_, _, err := compiled.Stamp(Values{Namespace: "team-a"})
	require.EqualError(t, err, "template policies: configmap/team-a is declared twice")
	objects, _, err := compiled.Stamp(Values{Namespace: "team-b"})
	require.NoError(t, err)
	require.Len(t, objects, 2)
}

func TestStampMovesASecretsStringDataToData(t *testing.T) {
	tests := []struct {
		name, secret string
		want         map[string]any
	}{
		{"data is kept", "{data: {a: YQ==}}", map[string]any{"data": map[string]any{"a": "YQ=="}}},
		{"stringData becomes data", "{stringData: {a: a}}", map[string]any{"data": map[string]any{"a": "YQ=="}}},
		{"stringData overrides data", "{data: {a: Yg==, b: Yg==}, stringData: {a: a}}", map[string]any{"data": map[string]any{"a": "YQ==", "b": "Yg=="}}},
		{"tokens are replaced before encoding", "{stringData: {a: $(CREATOR)}}", map[string]any{"data": map[string]any{"a": "YWxpY2U="}}},
		{"empty stringData is removed", "{stringData: {}}", map[string]any{}},
		{"an empty string is kept", "{stringData: {a: ''}}", map[string]any{"data": map[string]any{"a": ""}}},
		{"invalid stringData is kept, so that the API server rejects it", "{stringData: {a: 1}}", map[string]any{"stringData": map[string]any{"a": int64(1)}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			object := declared(t, templateOf(t, "{apiVersion: v1, kind: Secret, metadata: {name: a}, "+test.secret[1:]))[0].Object
			for _, field := range []string{"apiVersion", "kind", "metadata"} {
				delete(object, field)
			}
			require.Equal(t, test.want, object)
		})
	}
	other := declared(t, templateOf(t, "{apiVersion: example.dev/v1, kind: Secret, metadata: {name: a}, stringData: {a: a}}"))[0]
	require.Contains(t, other.Object, "stringData", "the kind Secret of another group keeps its stringData")
}

func TestKindsReturnsEachKindOnce(t *testing.T) {
	compiled := compiledOf(t, configMap, roleBinding, "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}")
	require.Equal(t, []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	}, compiled.Kinds())
}

// Stamp changes strings that contain tokens, and nothing else in any JSON value.
func FuzzStamp(f *testing.F) {
	f.Add([]byte(`{"a": ["$(CREATOR)", 1, null, true, {"$(NAMESPACE)": "$$(NAMESPACE)"}]}`), "team-a", "alice")
	f.Add([]byte(`[1e3, 9007199254740993, {}, [], ""]`), "", "$(NAMESPACE)")
	f.Fuzz(func(t *testing.T, data []byte, namespace, creator string) {
		var spec any
		if utiljson.Unmarshal(data, &spec) != nil || creator == "" {
			return
		}
		source := map[string]any{"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}, "spec": spec}
		before, err := json.Marshal(source)
		require.NoError(t, err)
		compiled := Compiled{objects: []compiledObject{{Unstructured: unstructured.Unstructured{Object: source}}}}
		values := Values{Namespace: namespace, Creator: creator}
		objects, _, err := compiled.Stamp(values)
		require.NoError(t, err)
		requireStamped(t, values, spec, objects[0].Object["spec"])
		after, err := json.Marshal(source)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "Stamp does not change the compiled object")
	})
}

func requireStamped(t *testing.T, values Values, before, after any) {
	t.Helper()
	switch before := before.(type) {
	case map[string]any:
		require.IsType(t, before, after)
		require.Len(t, after, len(before))
		for key, field := range before {
			require.Contains(t, after, key)
			requireStamped(t, values, field, after.(map[string]any)[key])
		}
	case []any:
		require.Len(t, after, len(before))
		for i, item := range before {
			requireStamped(t, values, item, after.([]any)[i])
		}
	case string:
		require.Equal(t, expandSlowly(values, before), after)
	default:
		require.Equal(t, before, after)
	}
}

// tenObjects returns a template that a platform team could have.
func tenObjects(t testing.TB) *v1alpha1.NamespaceTemplate {
	t.Helper()
	sources := []string{configMap, roleBinding, deployment, networkPolicy}
	for i := len(sources); i < 10; i++ {
		sources = append(sources, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings-%d}, data: {team: $(NAMESPACE), by: $(CREATOR)}}", i))
	}
	return templateOf(t, sources...)
}

func BenchmarkStampTenObjects(b *testing.B) {
	compiled, err := Compile(b.Context(), tenObjects(b), nil)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := compiled.Stamp(Values{Namespace: "team-a", Creator: "alice"}); err != nil {
			b.Fatal(err)
		}
	}
}
