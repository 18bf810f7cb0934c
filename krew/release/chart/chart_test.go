package chart

import (
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// execute returns the object that a template of the chart makes, with a condition that is true or false.
func execute(t *testing.T, tree map[string]any, enabled bool) map[string]any {
	t.Helper()
	w := &writer{}
	w.document(&object{tree: tree})
	require.NoError(t, w.err)
	parsed, err := template.New("").Funcs(template.FuncMap{
		"toYaml": func(value any) string { text, _ := toYAML(value); return strings.TrimSuffix(text, "\n") },
		"nindent": func(spaces int, text string) string {
			margin := "\n" + strings.Repeat(" ", spaces)
			return margin + strings.ReplaceAll(text, "\n", margin)
		},
	}).Parse(w.String())
	require.NoError(t, err, w.String())
	var text strings.Builder
	require.NoError(t, parsed.Execute(&text, map[string]any{
		"enabled": enabled, "list": []any{"x", map[string]any{"y": []any{"z"}}}, "map": map[string]any{"m": "n"},
		"none": map[string]any{},
	}))
	object := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text.String()), &object), text.String())
	return object
}

// Every text has the same value after Helm has evaluated the template, also next to actions.
func TestTextsArePreserved(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "a", "true", "1", "null", "a: b", "- a", "# a", "{{", "{{ $labels.name }}", "}}{{{{", "{{`x`}}", "`", `"`,
		"a\nb", "a\nb\n", "a\nb\n\n", "a\n\n\n", "\n", "\n\na", "  a\nb", "a\n  b\n c\n", "a\t\nb ", "a\n{{ b }}\n", "é\u2028\x01",
		strings.Repeat("word ", 60), "- a\n- b\n", "---\na", "a \n", "a\n \n", "a\n\t\n", "\n\n", " \n",
	} {
		after := optional{".enabled", "b"}
		tree := map[string]any{
			"a": text, "b": after, "c": []any{text, after, text}, "d": map[string]any{"a": text, "b": after, "{{ c }}": "key"},
			"e": []any{map[string]any{"a": text, "b": after}, []any{text}, map[string]any{}, []any{}}, "f": text,
		}
		inner := map[string]any{"a": text, "b": "b", "{{ c }}": "key"}
		require.Equal(t, map[string]any{
			"a": text, "b": "b", "c": []any{text, "b", text}, "d": inner,
			"e": []any{map[string]any{"a": text, "b": "b"}, []any{text}, map[string]any{}, []any{}}, "f": text,
		}, execute(t, tree, true), "%q", text)
		delete(inner, "b")
		require.Equal(t, map[string]any{
			"a": text, "c": []any{text, text}, "d": inner,
			"e": []any{map[string]any{"a": text}, []any{text}, map[string]any{}, []any{}}, "f": text,
		}, execute(t, tree, false), "%q", text)
	}
}

func TestNodesAcceptValues(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]any{
		"a": []any{"first", "x", map[string]any{"y": []any{"z"}}}, "b": map[string]any{"m": "n"},
		"c": map[string]any{"own": "o", "m": "n"}, "d": []any{map[string]any{"list": []any{"x", map[string]any{"y": []any{"z"}}}}},
		"e": true,
	}, execute(t, map[string]any{
		"a": []any{"first", fromValue(".list")}, "b": fromValue(".map"),
		"c": map[string]any{"own": "o", splice: fromValue(".map")}, "d": []any{map[string]any{"list": fromValue(".list")}},
		"e": expression(".enabled"), "f": fromValue(".none"),
	}, true))
}

// The generator fails where a component changes an object in a way that the chart would not have.
func TestChangesThatAChartCannotExpress(t *testing.T) {
	t.Parallel()
	parse := func(text string) []*object {
		o := &object{key: "o"}
		require.NoError(t, yaml.Unmarshal([]byte(text), &o.content))
		require.NoError(t, yaml.Unmarshal([]byte(text), &o.tree))
		return []*object{o}
	}
	const base = "{a: {b: [1, 2]}, c: d}"
	for with, want := range map[string]string{
		"{a: {b: [1, 2, 3], e: f}, c: d}": "",
		"{a: {b: [2, 1]}, c: d}":          "o: a: b: [0]: 1 is replaced by 2",
		"{a: {b: [1]}, c: d}":             "o: a: b: elements of a list are removed",
		"{a: {b: {}}, c: d}":              "o: a: b: elements of a list are removed",
		"{a: [], c: d}":                   "o: a: a map is replaced",
		"{a: {b: [1, 2]}}":                "o: c is removed",
	} {
		before := parse(base)
		all, err := vary(parse(base), before, parse(with), ".x")
		if want != "" {
			require.ErrorContains(t, err, want, with)
			continue
		}
		require.NoError(t, err)
		_, err = vary(all, before, parse(with), ".y")
		require.ErrorContains(t, err, "o: a: e: two kustomizations add it")
	}
	all, err := vary(parse(base), parse(base), nil, ".x")
	require.NoError(t, err)
	require.Equal(t, "not (.x)", all[0].condition)
}

// Each component of the manifests has a value with a description.
func TestComponentsAreDescribed(t *testing.T) {
	t.Parallel()
	folders, err := os.ReadDir("../../../manifests/components")
	require.NoError(t, err)
	require.Len(t, descriptions, len(folders))
	for _, folder := range folders {
		require.NotEmpty(t, descriptions[folder.Name()], folder.Name())
	}
	require.Equal(t, ".Values.components.securityContextConstraints",
		component{folder: "security-context-constraints"}.value())
}

func TestAValueThatCannotBeWrittenIsAnError(t *testing.T) {
	_, err := templates([]*object{{file: "x.yaml", tree: map[string]any{"k": func() {}}}})
	require.ErrorContains(t, err, "write a template of x.yaml: ")
}
