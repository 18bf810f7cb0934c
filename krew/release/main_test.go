package main

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/krew/manifest"
)

// Built twice, a release is the same, and krew takes its manifest.
func TestRelease(t *testing.T) {
	t.Chdir("../..")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	platform := runtime.GOOS + "/" + runtime.GOARCH
	build := func() map[string]string {
		dir := t.TempDir()
		at := filepath.Join(dir, "nstpl.yaml")
		require.NoError(t, run(t.Context(), []string{"-version=v1.2.3", "-out=" + dir, "-manifest=" + at, "-platforms=" + platform}, io.Discard))
		files := map[string]string{}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, entry := range entries {
			content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			require.NoError(t, err)
			files[entry.Name()] = string(content)
		}
		return files
	}
	first := build()
	archive := "nstpl-v1.2.3-" + strings.ReplaceAll(platform, "/", "-") + ".tar.gz"
	require.Len(t, first, 3)
	require.Contains(t, first, archive)
	require.Contains(t, first["SHA256SUMS"], "  "+archive+"\n")
	require.Equal(t, first, build())
	plugin, err := manifest.Parse([]byte(first["nstpl.yaml"]))
	require.NoError(t, err)
	require.Empty(t, plugin.Check("nstpl"))
	require.Len(t, plugin.For(platform), 1)
	require.Equal(t, "https://nstpl.dev/releases/v1.2.3/"+archive, plugin.For(platform)[0].URI)
	require.Error(t, run(t.Context(), []string{"-version=1.2.3"}, io.Discard))
}
