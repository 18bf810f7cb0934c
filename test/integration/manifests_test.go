package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The component for cert-manager builds with the manifests and those for earlier versions, and has the operator take its
// certificate from cert-manager.
func TestManifestsWithCertManager(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "manifests"), os.DirFS("../../manifests")))
	for _, folder := range []string{"manifests", "manifests/overlays/before-1.36"} {
		kustomization := "resources: [" + folder + "]\ncomponents: [manifests/components/cert-manager]\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, "kustomization.yaml"), []byte(kustomization), 0o600))
		built, err := shared.kubectl(t.Context(), "", "kustomize", root)
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(built, "cert-manager.io/inject-ca-from: nstpl-system/nstpl-operator-webhook"))
		require.Contains(t, built, "- --webhook-cert-dir=/certificates")
		require.Contains(t, built, "secretName: nstpl-operator-webhook-cert-manager")
	}
}
