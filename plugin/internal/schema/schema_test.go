package schema

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/yaml"

	"nstpl.dev/nstpl/manifests/crd"
	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

const samples = "../../../manifests/samples"

// compiled returns a validator. The schema itself must be valid.
func compiled(t *testing.T, schema map[string]any) *jsonschema.Schema {
	t.Helper()
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("schema.json", plain(t, schema)))
	validator, err := compiler.Compile("schema.json")
	require.NoError(t, err)
	return validator
}

// plain returns a value as the JSON library reads it.
func plain(t *testing.T, value any) any {
	t.Helper()
	content, err := json.Marshal(value)
	require.NoError(t, err)
	read, err := jsonschema.UnmarshalJSON(strings.NewReader(string(content)))
	require.NoError(t, err)
	return read
}

func documents(t *testing.T, content string) []map[string]any {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(content), 4096)
	var all []map[string]any
	for {
		object := map[string]any{}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, object)
	}
}

// All samples and their trees are valid.
func TestSamplesAreValid(t *testing.T) {
	t.Parallel()
	definitions, err := crd.All()
	require.NoError(t, err)
	schema, err := ofAll(definitions)
	require.NoError(t, err)
	all, used := compiled(t, schema), map[string]bool{}
	require.NoError(t, filepath.WalkDir(samples, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, object := range documents(t, string(content)) {
			require.NoError(t, all.Validate(plain(t, object)), file)
			if version, _ := object["apiVersion"].(string); strings.HasPrefix(version, "policy.nstpl.dev/") {
				used[object["kind"].(string)] = true
			}
		}
		return nil
	}))
	require.GreaterOrEqual(t, len(used), 4)
}

// Each sample with objects of nstpl names the schema of the repository, so that editors find it.
func TestSamplesNameTheirSchema(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(samples + "/*.yaml")
	require.NoError(t, err)
	named := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.Contains(string(content), "\napiVersion: policy.nstpl.dev/") {
			continue
		}
		match := regexp.MustCompile(`^# yaml-language-server: \$schema=(\S+)\n`).FindStringSubmatch(string(content))
		require.NotNil(t, match, file)
		require.FileExists(t, filepath.Join(filepath.Dir(file), match[1]))
		named++
	}
	require.NotZero(t, named)
}

func TestMistakesAreReported(t *testing.T) {
	t.Parallel()
	definitions, err := crd.All()
	require.NoError(t, err)
	schema, err := ofAll(definitions)
	require.NoError(t, err)
	validator := compiled(t, schema)
	const good = `
apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: a, labels: {team: b}}
spec:
  namespaces: {labelSelector: {}}
  deletionPolicy: Orphan
  templates:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {any: field}}
`
	for name, test := range map[string]struct{ old, new, want string }{
		"valid":                      {"", "", ""},
		"another API group":          {"policy.nstpl.dev/v1alpha1", "example.com/v1", ""},
		"an unknown field":           {"deletionPolicy:", "deletePolicy:", "deletePolicy"},
		"an unknown field in a list": {"labelSelector: {}", "labelSelector: {matchLabel: {a: b}}", "matchLabel"},
		"an unsupported value":       {"Orphan", "Keep", "/spec/deletionPolicy"},
		"a wrong type":               {"{labelSelector: {}}", "[]", "/spec/namespaces"},
		"a label that is a number":   {"team: b", "team: 1", "/metadata/labels/team"},
		"a typo in the metadata":     {"labels:", "lables:", "lables"},
		"an unknown kind":            {"NamespaceTemplate", "NamespaceTemplates", "/kind"},
		"an unknown version":         {"v1alpha1", "v1", "/apiVersion"},
		"no kind":                    {"kind: NamespaceTemplate\n", "", "kind"},
		"no metadata":                {"metadata: {name: a, labels: {team: b}}\n", "", "metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := documents(t, strings.Replace(good, test.old, test.new, 1))[0]
			err := validator.Validate(plain(t, object))
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

// kubeconform executes a location as a template. Only nstpl's kinds may have the schema, which accepts any other kind.
func TestKubeconformFindsTheSchemaForKindsOfNstplOnly(t *testing.T) {
	t.Parallel()
	manual, err := os.ReadFile("../../../docs/install.md")
	require.NoError(t, err)
	for _, text := range []string{string(manual), New(cli.Session{}).Example} {
		location := regexp.MustCompile(`-schema-location '(\S+)'`).FindStringSubmatch(text)
		require.NotNil(t, location, text)
		file := func(group string) string {
			var name strings.Builder
			parsed, err := template.New("").Parse(location[1])
			require.NoError(t, err)
			require.NoError(t, parsed.Execute(&name, map[string]string{"Group": group}))
			return name.String()
		}
		require.Contains(t, text, "kubectl nstpl schema >"+file(v1alpha1.GroupVersion.Group)+"\n")
		require.NotEqual(t, file("apps"), file(v1alpha1.GroupVersion.Group))
	}
}
