package source_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/source"
)

const quota = `apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: quota}
spec:
  namespaces: {labelSelector: {}}
  templates:
  - {apiVersion: v1, kind: ResourceQuota, metadata: {name: quota}, spec: {hard: {pods: 9007199254740993}}}
`

func names(templates []*v1alpha1.NamespaceTemplate) []string {
	var names []string
	for _, template := range templates {
		names = append(names, template.Name)
	}
	return names
}

func TestReadAcceptsFilesDirectoriesAndStandardInput(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("a.yaml",
		"# nothing\n---\n"+quota+"---\n"+strings.ReplaceAll(quota, "name: quota}\nspec", "name: other}\nspec"))
	write("sub/list.json", `{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "NamespaceTemplate", "metadata": {"name": "listed"},
		 "spec": {"namespaces": {"labelSelector": {}}, "driftPolicy": "Report"},
		 "status": {"revisions": [{"name": "listed-1", "revision": 1, "generation": 1, "startTime": null}]}}]}`)
	write("sub/config.yml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
	write("README.md", "not YAML: [")

	files, skipped, err := source.Read(source.Filenames{Paths: []string{dir, "-"}, Recursive: true},
		strings.NewReader(strings.ReplaceAll(quota, "name: quota}\nspec", "name: stdin}\nspec")))
	require.NoError(t, err)
	require.Equal(t, []string{"quota", "other", "listed", "stdin"}, names(files))
	require.Equal(t, []string{filepath.Join(dir, "sub", "config.yml") + ": ConfigMap c: not a NamespaceTemplate"}, skipped)
	require.Contains(t, string(files[0].Spec.Templates[0].Raw), "9007199254740993")
	require.Equal(t, v1alpha1.DriftCorrect, files[0].Spec.DriftPolicy)
	require.Equal(t, v1alpha1.FailureFail, files[0].Spec.FailurePolicy)
	require.Equal(t, v1alpha1.DeletionOrphan, files[0].Spec.DeletionPolicy)
	require.Equal(t, v1alpha1.DriftReport, files[2].Spec.DriftPolicy)
	require.Empty(t, files[2].Status, "the status of another cluster says nothing")
}

func TestReadRejectsInvalidTemplates(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"an unknown field": {
			strings.Replace(quota, "templates:", "template:", 1),
			`standard input:6: template quota: unknown field "spec.template"`,
		},
		"a duplicate field": {quota + "  driftPolicy: Report\n  driftPolicy: Correct\n",
			`standard input:9: duplicate key "driftPolicy", which is also in line 8: remove one of the two`},
		"an unknown policy": {
			quota + "  driftPolicy: Revert\n", `spec.driftPolicy: invalid value "Revert": must be Correct or Report`,
		},
		"another version": {
			strings.Replace(quota, "v1alpha1", "v2", 1),
			"apiVersion is policy.nstpl.dev/v2: change it to policy.nstpl.dev/v1alpha1",
		},
		"no name": {
			strings.Replace(quota, "{name: quota}\nspec", "{}\nspec", 1), "metadata.name is missing",
		},
		"an invalid name": {
			strings.Replace(quota, "{name: quota}\nspec", "{name: Quota}\nspec", 1),
			"metadata.name: a lowercase RFC 1123 subdomain",
		},
		"a duplicate name": {quota + "---\n" + quota, "template quota is declared more than once in the files"},
		"only other kinds": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", "no NamespaceTemplate found in",
		},
		"no document":         {"", "no NamespaceTemplate found in"},
		"invalid YAML":        {"a: [", "standard input:1: it cannot be parsed: line 1:"},
		"a string, not a map": {"word", "standard input:1: it is not an object: add apiVersion, kind and metadata"},
		"a value of another type": {
			strings.Replace(quota, "{labelSelector: {}}", "[]", 1),
			"standard input:5: template quota: spec.namespaces is a list: it must be an object",
		},
		"no kind": {strings.Replace(quota, "kind: NamespaceTemplate", "", 1), "standard input:1: kind is missing"},
		"a kind that is not a text": {
			strings.Replace(quota, "NamespaceTemplate", "[a]", 1), "standard input:2: kind is not a string",
		},
		"nested lists": {
			strings.Repeat(`{"apiVersion": "v1", "kind": "List", "items": [`, 18) + strings.Repeat("]}", 18),
			"lists are nested more than 16 levels deep",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := source.Read(source.Filenames{Paths: []string{"-"}}, strings.NewReader(test.text))
			require.ErrorContains(t, err, test.want)
		})
	}
	_, _, err := source.Read(source.Filenames{Paths: []string{filepath.Join(t.TempDir(), "absent.yaml")}}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMergeKeepsUIDAndStatus(t *testing.T) {
	status := v1alpha1.NamespaceTemplateStatus{Kinds: []v1alpha1.GroupKind{{Kind: "Secret"}}}
	stored := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}, Status: status}
	stored.Status.Revisions = []v1alpha1.TemplateRevision{{Name: "a-1"}}
	unchanged := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	changed := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.NamespaceTemplateSpec{DriftPolicy: "Report"},
	}
	added := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "c"}}

	merged := source.Merge([]*v1alpha1.NamespaceTemplate{stored, unchanged},
		[]*v1alpha1.NamespaceTemplate{changed, added})
	require.Len(t, merged, 3)
	require.Equal(t, stored.UID, merged[0].UID)
	require.Equal(t, status, merged[0].Status, "without the revisions, which do not have the spec of the file")
	require.Len(t, stored.Status.Revisions, 1)
	require.Equal(t, v1alpha1.DriftReport, merged[0].Spec.DriftPolicy)
	require.Empty(t, changed.UID, "the arguments must not be changed")
	require.Same(t, unchanged, merged[1])
	require.Same(t, added, merged[2])
}

func TestReadAllFindsObjectsAndTheirLines(t *testing.T) {
	files, err := source.ReadAll(source.Filenames{Paths: []string{"-"}}, strings.NewReader(`# a values file
a: 1
---
apiVersion: v1
kind: ConfigMapList
items:
- metadata: {name: first}
- apiVersion: example.com/v1
  kind: Widget
  metadata:
    name: second
    namespace: 7
---
apiVersion: v1
---
- a list
---
kind: Secret
kind: Secret
apiVersion: v1
`))
	require.NoError(t, err)
	var objects []string
	for _, object := range files.Objects {
		objects = append(objects, strings.Join([]string{
			strconv.Itoa(object.Lines.Of("metadata", "name")), object.APIVersion, object.Kind, object.Namespace,
			object.Name,
		}, " "))
	}
	require.Equal(t, []string{
		"2    ", "7 v1 ConfigMap  first", "11 example.com/v1 Widget 7 second", "18 v1 Secret  ",
	}, objects)
	require.JSONEq(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}}`,
		string(files.Objects[1].Data))
	var problems []string
	for _, problem := range files.Problems {
		problems = append(problems, problem.Error())
	}
	require.Equal(t, []string{
		"standard input:14: kind is missing: add it",
		"standard input:16: it is a YAML list, not an object: use several documents, or an object of kind List",
		`standard input:19: duplicate key "kind", which is also in line 18: remove one of the two`,
	}, problems)
}
