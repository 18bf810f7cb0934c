package source_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/source"
)

// write writes files, by their paths, in a new directory.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, content := range files {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

// As with kubectl, subdirectories are read only with -R. The command names what it left out.
func TestSubdirectoriesAreReadOnRequest(t *testing.T) {
	named := func(name string) string {
		return strings.ReplaceAll(quota, "name: quota}\nspec", "name: "+name+"}\nspec")
	}
	dir := write(t, map[string]string{
		"a.yaml": named("a"), "sub/b.yaml": named("b"), "sub/c.yaml": named("c"), "sub/deep/d.json": "{}", "docs/README": "",
	})
	found, skipped, err := source.Read(source.Filenames{Paths: []string{dir}}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, names(found))
	require.Equal(t, []string{
		filepath.Join(dir, "sub") + ": use -R to read subdirectories",
		filepath.Join(dir, "sub/deep") + ": use -R to read subdirectories",
	}, skipped)
	_, skipped, err = source.Objects(source.Filenames{Paths: []string{dir}}, nil)
	require.NoError(t, err)
	require.Len(t, skipped, 2)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sub/deep")))
	found, skipped, err = source.Read(source.Filenames{Paths: []string{dir}, Recursive: true}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c"}, names(found))
	require.Empty(t, skipped)

	_, skipped, err = source.Read(source.Filenames{Paths: []string{filepath.Join(dir, "docs")}}, nil)
	require.ErrorContains(t, err, "no NamespaceTemplate found in")
	require.Empty(t, skipped)
}

func TestFilesAreReadFromURLs(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/quota.yaml":
			_, _ = w.Write([]byte(quota))
		case "/endless.yaml":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	from := func(path string) source.Filenames { return source.Filenames{Paths: []string{server.URL + path}} }
	found, _, err := source.Read(from("/quota.yaml"), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"quota"}, names(found))
	_, _, err = source.Read(from("/absent.yaml"), nil)
	require.EqualError(t, err, "read "+server.URL+"/absent.yaml: the server answered 404 Not Found")
	_, _, err = source.Read(from("/endless.yaml"), nil)
	require.ErrorContains(t, err, "larger than 8 MiB")
}

func TestAKustomizationIsBuilt(t *testing.T) {
	dir := write(t, map[string]string{
		"base/quota.yaml":            quota,
		"base/kustomization.yaml":    "resources: [quota.yaml]\n",
		"overlay/kustomization.yaml": "resources: [../base]\nnamePrefix: prod-\n",
		"broken/kustomization.yaml":  "resources: [absent.yaml]\n",
	})
	found, _, err := source.Read(source.Filenames{Kustomization: filepath.Join(dir, "overlay")}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"prod-quota"}, names(found))
	_, _, err = source.Read(source.Filenames{Kustomization: filepath.Join(dir, "broken")}, nil)
	require.ErrorContains(t, err, "build the kustomization "+filepath.Join(dir, "broken"))
}

func TestFlagsThatCannotBeCombined(t *testing.T) {
	require.NoError(t, (&source.Filenames{}).Check())
	require.NoError(t, (&source.Filenames{Paths: []string{"a"}, Recursive: true}).Check())
	require.EqualError(t, (&source.Filenames{Paths: []string{"a"}, Kustomization: "b"}).Check(), "specify either -f or -k")
	require.EqualError(t, (&source.Filenames{Recursive: true}).Check(), "-R requires -f")
}

func TestMessagesNameWhatWasRead(t *testing.T) {
	require.Equal(t, "a.yaml, standard input", (&source.Filenames{Paths: []string{"a.yaml", "-"}}).String())
	require.Equal(t, "base", (&source.Filenames{Kustomization: "base"}).String())
}
