package drift

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/fields"
)

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, utiljson.Unmarshal([]byte(text), &object.Object))
	return object
}

func TestPatchOfATemplate(t *testing.T) {
	const (
		begin = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings"},`
		fixed = `{"op":"test","path":"/spec/templates/1/kind","value":"ConfigMap"},` +
			`{"op":"test","path":"/spec/templates/1/metadata/name","value":"settings"}`
	)
	for name, test := range map[string]struct {
		// The template has an object that is rendered as the declared one, and another client changed it to the live one.
		template, declared, live string
		want, err                string
	}{
		"a value": {
			template: `"data":{"a":"1"}}`, declared: `"data":{"a":"1"}}`, live: `"data":{"a":"2"}}`,
			want: `{"op":"test","path":"/spec/templates/1/data/a","value":"1"},
				{"op":"replace","path":"/spec/templates/1/data/a","value":"2"}`,
		},
		"a value that looks like a token": {
			template: `"data":{"a":"1"}}`, declared: `"data":{"a":"1"}}`, live: `"data":{"a":"$(NAMESPACE)"}}`,
			want: `{"op":"test","path":"/spec/templates/1/data/a","value":"1"},
				{"op":"replace","path":"/spec/templates/1/data/a","value":"$$(NAMESPACE)"}`,
		},
		"a removed field": {
			template: `"data":{"a/b":"1","c":"2"}}`, declared: `"data":{"a/b":"1","c":"2"}}`, live: `"data":{"c":"2"}}`,
			want: `{"op":"test","path":"/spec/templates/1/data/a~1b","value":"1"},
				{"op":"remove","path":"/spec/templates/1/data/a~1b"}`,
		},
		"positions after a removed item": {
			template: `"l":[{"name":"x"},{"name":"y","v":1},{"name":"z"}]}`,
			declared: `"l":[{"name":"x"},{"name":"y","v":1},{"name":"z"}]}`,
			live:     `"l":[{"name":"y","v":2},{"name":"z"},{"name":"new"}]}`,
			want: `{"op":"test","path":"/spec/templates/1/l/0","value":{"name":"x"}},
				{"op":"remove","path":"/spec/templates/1/l/0"},
				{"op":"test","path":"/spec/templates/1/l/0/v","value":1},
				{"op":"replace","path":"/spec/templates/1/l/0/v","value":2},
				{"op":"add","path":"/spec/templates/1/l/-","value":{"name":"new"}}`,
		},
		"a token": {
			template: `"data":{"a":"$(NAMESPACE)"}}`, declared: `"data":{"a":"team"}}`, live: `"data":{"a":"2"}}`,
			err: "data.a of ConfigMap/settings is not a field that a patch of template t can change, because an overlay or " +
				"a token decides it: edit the template by hand",
		},
		"an overlay": {
			template: `"data":{"a":"1"}}`, declared: `"data":{"a":"2"}}`, live: `"data":{"a":"3"}}`,
			err: "data.a of ConfigMap/settings is not a field that a patch of template t can change, because an overlay or " +
				"a token decides it: edit the template by hand",
		},
		"a field that only an overlay has": {
			template: `"data":{}}`, declared: `"data":{"a":{"b":"2"}}}`, live: `"data":{"a":{"b":"3"}}}`,
			err: "data.a.b of ConfigMap/settings is not a field that a patch of template t can change, because an overlay " +
				"or a token decides it: edit the template by hand",
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := &v1alpha1.NamespaceTemplate{}
			template.Name = "t"
			template.Spec.Templates = []runtime.RawExtension{
				{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"}}`)},
				{Raw: []byte(begin + test.template)},
			}
			declared, live := decode(t, begin+test.declared), decode(t, begin+test.live)
			patch, err := newPatch(template, declared, fields.Compare(declared.Object, live.Object))
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			printed, err := json.Marshal(patch)
			require.NoError(t, err)
			require.JSONEq(t, "["+fixed+","+test.want+"]", string(printed))
		})
	}
}

func TestDeclarationIsTheObjectThatIsRendered(t *testing.T) {
	raw := func(name string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"}}`)}
	}
	declared := decode(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"team-config"}}`)
	for name, test := range map[string]struct {
		templates []runtime.RawExtension
		position  int
		err       string
	}{
		"the same name":              {[]runtime.RawExtension{raw("other"), raw("team-config")}, 1, ""},
		"the only one of the kind":   {[]runtime.RawExtension{raw("$(NAMESPACE)-config")}, 0, ""},
		"one of several of the kind": {[]runtime.RawExtension{raw("$(NAMESPACE)-config"), raw("other")}, 0, "unknown"},
		"an overlay's":               {nil, 0, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			template := &v1alpha1.NamespaceTemplate{Spec: v1alpha1.NamespaceTemplateSpec{Templates: test.templates}}
			position, _, err := declaration(template, declared)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.position, position)
		})
	}
}
