package output_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/plugin/internal/output"
)

func TestYAMLKeepsEveryJSONValue(t *testing.T) {
	for _, text := range []string{
		"plain", "", "yes", "1e3", "0x10", "null", "a: b", "- a", "x\ny\n", " lead", "trail ", "#", "'\"",
		"\x00", "\x07", "\x1b[31m", "\x7f", "\u0080", "\u0085", "\u009f", "\u2028", "\ufeff", "\ufffe", "\uffff", "é🦊",
		"\t", "\r\n", "a\u202eb",
	} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			want := map[string]any{"value": text, "key " + text: "x", "integer": float64(1 << 53)}
			document, err := output.YAML(want)
			require.NoError(t, err)
			var got map[string]any
			require.NoError(t, yaml.Unmarshal(document, &got), "%s", document)
			require.Equal(t, want, got)
			require.NotContains(t, string(document), "\u202e")
		})
	}
}

func TestYAMLStreamSeparatesDocuments(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, output.YAMLStream(&out, []map[string]string{{"a": "1"}, {"b": "\x7f"}, {"c": "3"}}))
	require.Equal(t, "a: \"1\"\n---\n{\n  \"b\": \"\\u007f\"\n}\n---\nc: \"3\"\n", out.String())
}

func TestLineEscapesControlCharacters(t *testing.T) {
	var out bytes.Buffer
	output.Line(&out, "%s is %q", "a\x1b[31m\nb\u202e", "é")
	require.Equal(t, `a\x1b[31m\nb\u202e is "é"`+"\n", out.String())
}

func TestTableEscapesCells(t *testing.T) {
	var out bytes.Buffer
	table := output.Table{
		Columns: []string{"Name"}, WideColumns: []string{"Message"}, Rows: [][]string{{"a", "x\x1by\nz"}},
	}
	require.NoError(t, table.Print(&out, true))
	require.Equal(t, "NAME   MESSAGE\na      x\\x1by\\nz\n", out.String())
	out.Reset()
	require.NoError(t, table.Print(&out, false))
	require.Equal(t, "NAME\na\n", out.String())
}

func TestError(t *testing.T) {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	refused := &url.Error{Op: "Get", URL: "https://127.0.0.1:1/api", Err: fmt.Errorf("dial: %w", syscall.ECONNREFUSED)}
	tests := map[string]struct {
		err  error
		want string
	}{
		"of the plugin": {errors.New("no such thing"), "error: no such thing"},
		"of the API server": {
			apierrors.NewNotFound(namespaces, "x"), `Error from server (NotFound): namespaces "x" not found`,
		},
		"wrapped": {fmt.Errorf("read it: %w", apierrors.NewNotFound(namespaces, "x")),
			`Error from server (NotFound): read it: namespaces "x" not found`},
		"forbidden": {apierrors.NewForbidden(namespaces, "x", errors.New("no")),
			`Error from server (Forbidden): namespaces "x" is forbidden: no: ` +
				`ask a cluster administrator for this permission`},
		"forbidden without nstpl-viewer": {
			apierrors.NewForbidden(schema.GroupResource{Group: "policy.nstpl.dev", Resource: "templateexemptions"}, "",
				errors.New(`User "jane" cannot list resource "templateexemptions" in API group "policy.nstpl.dev"`)),
			`Error from server (Forbidden): templateexemptions.policy.nstpl.dev is forbidden: User "jane" cannot list ` +
				`resource "templateexemptions" in API group "policy.nstpl.dev": ` +
				`ask a cluster administrator for the ClusterRole nstpl-viewer`,
		},
		"connection refused": {fmt.Errorf("list: %w", refused),
			"The connection to the server 127.0.0.1:1 was refused - did you specify the right host or port?"},
		"joined": {errors.Join(errors.New("one"), apierrors.NewNotFound(namespaces, "x")),
			"error: one\nError from server (NotFound): namespaces \"x\" not found"},
		"with a control character": {errors.New("a\x1b[0m"), `error: a\x1b[0m`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, output.Error(test.err)) })
	}
}

func TestObject(t *testing.T) {
	require.Equal(t, "configmap/limits", output.Object(schema.GroupKind{Kind: "ConfigMap"}, "limits"))
	require.Equal(t, "networkpolicy.networking.k8s.io/deny",
		output.Object(schema.GroupKind{Group: "networking.k8s.io", Kind: "NetworkPolicy"}, "deny"))
}

func TestPrintEscapesControlCharacters(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "a\x1b[31m\x7f\u009b\u202e", "labels": map[string]any{"a": "b"}},
	}}
	for _, format := range []string{
		"name", "json", "jsonpath={.metadata.name}{\"\\t\"}{.kind}{\"\\n\"}",
		"go-template={{.metadata.name}}{{\"\\n\"}}",
	} {
		t.Run(format, func(t *testing.T) {
			flags := genericclioptions.NewPrintFlags("")
			flags.OutputFormat = &format
			printer, err := flags.ToPrinter()
			require.NoError(t, err)
			var out bytes.Buffer
			require.NoError(t, output.Print(&out, printer, format, object))
			require.NotContains(t, out.String(), "\x1b")
			require.NotContains(t, out.String(), "\x7f")
			require.NotContains(t, out.String(), "\u009b")
			if format == "json" {
				require.NotContains(t, out.String(), "\u202e")
				got := &unstructured.Unstructured{}
				require.NoError(t, got.UnmarshalJSON(out.Bytes()))
				require.Equal(t, object, got)
			}
			if strings.HasPrefix(format, "jsonpath") {
				require.Equal(t, `a\x1b[31m\x7f\u009b\u202e`+"\tConfigMap\n", out.String())
			}
		})
	}
}

func TestPrintEscapesYAML(t *testing.T) {
	for _, name := range []string{"plain", "a\x1b[31mb", "a\u202eb\n\tc"} {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": name, "generation": int64(1<<60 + 1)},
		}}
		var out bytes.Buffer
		require.NoError(t, output.Print(&out, &printers.YAMLPrinter{}, "yaml", object))
		for _, r := range out.String() {
			require.False(t, r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control)), "%q",
				out.String())
		}
		data, err := yaml.YAMLToJSON(out.Bytes())
		require.NoError(t, err)
		got := &unstructured.Unstructured{}
		require.NoError(t, got.UnmarshalJSON(data))
		require.Equal(t, object, got)
	}
}

func TestJSONEscapesControlCharacters(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, output.JSON(&out, []string{"a\x1b\x7f\u009b\u202e<é"}))
	require.Equal(t, "[\n    \"a\\u001b\\u007f\\u009b\\u202e<é\"\n]\n", out.String())
}
