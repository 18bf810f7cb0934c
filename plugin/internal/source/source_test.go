package source_test

import (
	"os"
	"path/filepath"
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

func names(files source.Files) []string {
	var names []string
	for _, template := range files.Templates {
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
		 "spec": {"namespaces": {"labelSelector": {}}, "driftPolicy": "Report"}}]}`)
	write("sub/config.yml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n")
	write("README.md", "not YAML: [")

	files, err := source.Read([]string{dir, "-"},
		strings.NewReader(strings.ReplaceAll(quota, "name: quota}\nspec", "name: stdin}\nspec")))
	require.NoError(t, err)
	require.Equal(t, []string{"quota", "other", "listed", "stdin"}, names(files))
	require.Equal(t, []string{filepath.Join(dir, "sub", "config.yml") + ": ConfigMap c"}, files.Skipped)
	require.Contains(t, string(files.Templates[0].Spec.Templates[0].Raw), "9007199254740993")
	require.Equal(t, v1alpha1.DriftCorrect, files.Templates[0].Spec.DriftPolicy)
	require.Equal(t, v1alpha1.FailureFail, files.Templates[0].Spec.FailurePolicy)
	require.Equal(t, v1alpha1.DeletionOrphan, files.Templates[0].Spec.DeletionPolicy)
	require.Equal(t, v1alpha1.DriftReport, files.Templates[2].Spec.DriftPolicy)
}

func TestReadRejectsInvalidTemplates(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"an unknown field": {
			strings.Replace(quota, "templates:", "template:", 1), `unknown field "spec.template"`,
		},
		"a duplicate field": {quota + "  driftPolicy: Report\n  driftPolicy: Correct\n", "driftPolicy"},
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
		"invalid YAML":        {"a: [", "standard input: document 1:"},
		"a string, not a map": {"word", "standard input: document 1:"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := source.Read([]string{"-"}, strings.NewReader(test.text))
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := source.Read([]string{filepath.Join(t.TempDir(), "absent.yaml")}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestMergeKeepsUIDAndStatus(t *testing.T) {
	status := v1alpha1.NamespaceTemplateStatus{Kinds: []v1alpha1.GroupKind{{Kind: "Secret"}}}
	stored := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}, Status: status}
	unchanged := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	changed := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1alpha1.NamespaceTemplateSpec{DriftPolicy: "Report"},
	}
	added := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "c"}}

	merged := source.Merge([]*v1alpha1.NamespaceTemplate{stored, unchanged},
		[]*v1alpha1.NamespaceTemplate{changed, added})
	require.Len(t, merged, 3)
	require.Equal(t, stored.UID, merged[0].UID)
	require.Equal(t, status, merged[0].Status)
	require.Equal(t, v1alpha1.DriftReport, merged[0].Spec.DriftPolicy)
	require.Empty(t, changed.UID, "the arguments must not be changed")
	require.Same(t, unchanged, merged[1])
	require.Same(t, added, merged[2])
}
