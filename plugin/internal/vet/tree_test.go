package vet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
