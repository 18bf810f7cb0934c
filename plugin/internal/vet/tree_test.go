package vet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/files"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// A tree can have more violations than anyone reads. Those that are not listed are counted.
func TestViolationsThatAreNotListedAreCounted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "corp")
	require.NoError(t, os.Mkdir(dir, 0o755))
	binding := "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects:\n"
	file := filepath.Join(dir, "a.yaml")
	require.NoError(t, os.WriteFile(file, []byte(binding+strings.Repeat("- {}\n", 1002)), 0o600))
	var r result
	root, err := r.checkTree(dir)
	require.NoError(t, err)
	require.Equal(t, "corp", root)
	require.Len(t, r.Violations, 1000)
	require.Equal(t, []finding{{
		Path: "corp", Message: "2 more violations: correct those that are listed, and run vet again",
	}}, r.Warnings)
}

// A tree that vet accepts without a word would stop nstpl-sync.
func TestTreesThatNeedMuchMemory(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../../manifests/components/sync/deployment.yaml")
	require.NoError(t, err)
	require.Contains(t, string(manifest), fmt.Sprintf("memory: %dMi", defaultMemory))
	var r result
	r.checkSize("corp", 384<<20/10*9/hierarchy.BytesPerValue)
	require.Empty(t, r.Warnings)
	r.checkSize("corp", 384<<20/10*9/hierarchy.BytesPerValue+10)
	require.Len(t, r.Warnings, 1)

	dir := t.TempDir()
	for i := range 4 {
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", i))
		role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\nrules:\n" +
			"- {apiGroups: [''], verbs: [get], resources: [" + strings.Repeat("a,", 160_000) + "]}\n"
		require.NoError(t, os.WriteFile(file, []byte(role), 0o600))
	}
	r = result{}
	root, err := r.checkTree(dir)
	require.NoError(t, err)
	require.Contains(t, r.Warnings, finding{
		Path: root, Message: "its manifests have 640080 values, of which a field has two: nstpl-sync follows it only with " +
			"a memory limit of at least 407Mi, and its default is 384Mi",
	})
}

// Other tools can apply a tree with files for which nstpl-sync refuses a commit.
func TestVetWarnsOfFilesThatNstplSyncRefuses(t *testing.T) {
	t.Parallel()
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
	dir := filepath.Join(t.TempDir(), "corp")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".cache"), 0o755))
	for file, content := range map[string]string{
		"README.md": "a text", "logo.svg": pointer, ".cache/logo.svg": pointer, "caf\xe9.txt": pointer,
		"about.md": pointer + strings.Repeat("\n", files.MaxPointer),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
	for file, size := range map[string]int64{"manual.txt": 8 << 20, "large.bin": 9 << 20} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), nil, 0o600))
		require.NoError(t, os.Truncate(filepath.Join(dir, file), size))
	}
	var r result
	_, err := r.checkTree(dir)
	require.NoError(t, err)
	require.Empty(t, r.Violations)
	var warnings []string
	for _, warning := range r.Warnings {
		warnings = append(warnings, warning.Path+": "+warning.Message)
	}
	require.ElementsMatch(t, []string{
		"corp/caf\ufffd.txt: its name is not valid UTF-8, so it is ignored",
		"corp/large.bin: nstpl-sync refuses a commit with this file: it is larger than 8 MiB: move it out of the tree",
		"corp/logo.svg: nstpl-sync refuses a commit with this file: it is a pointer to a file in Git LFS, and not the file " +
			"itself: remove it from LFS: git lfs untrack, then git add --renormalize",
	}, warnings)
}
