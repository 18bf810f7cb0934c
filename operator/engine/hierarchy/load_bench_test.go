package hierarchy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// BenchmarkLoad reads trees in which every fifth directory is a policyspace and every directory has policies.
func BenchmarkLoad(b *testing.B) {
	for _, namespaces := range []int{1_000, 3_000, 10_000} {
		dir := filepath.Join(b.TempDir(), "corp")
		writeTree(b, dir, namespaces)
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				result, err := hierarchy.Load(os.DirFS(dir), "corp")
				require.NoError(b, err)
				require.Empty(b, result.Violations)
			}
		})
	}
}

// BenchmarkCompile compiles the trees of BenchmarkLoad.
func BenchmarkCompile(b *testing.B) {
	for _, namespaces := range []int{1_000, 3_000, 10_000} {
		dir := filepath.Join(b.TempDir(), "corp")
		writeTree(b, dir, namespaces)
		result, err := hierarchy.Load(os.DirFS(dir), "corp")
		require.NoError(b, err)
		b.Run(fmt.Sprintf("namespaces=%d", namespaces), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				objects, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
				require.NoError(b, err)
				require.Greater(b, len(objects), 2*namespaces)
			}
		})
	}
}

// writeTree writes a tree of policies with so many namespaces, and with one policyspace for each five of them.
func writeTree(b *testing.B, dir string, namespaces int) {
	b.Helper()
	const perSpace, perRegion = 5, 50
	write := func(dir string, files map[string]string) {
		require.NoError(b, os.MkdirAll(dir, 0o755))
		for name, content := range files {
			require.NoError(b, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
	}
	write(dir, map[string]string{"binding.yaml": benchBinding("auditors")})
	for i := range namespaces {
		space := i / perSpace
		region := filepath.Join(dir, fmt.Sprintf("region-%d", space/perRegion))
		inSpace := filepath.Join(region, fmt.Sprintf("space-%d", space))
		if i%perSpace == 0 {
			write(region, map[string]string{"binding.yaml": benchBinding("region")})
			write(inSpace, map[string]string{
				"binding.yaml": benchBinding("space"), "quota.yaml": benchQuota("limits", 100),
			})
		}
		name := fmt.Sprintf("team-%d", i)
		write(filepath.Join(inSpace, name), map[string]string{
			"namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name +
				"\n  labels:\n    env: prod\n",
			"policies.yaml": benchRole + "---\n" + benchBinding("developers") + "---\n" + benchQuota("budget", 10),
		})
	}
}

const benchRole = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: deployer
rules:
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, update, patch]
- apiGroups: [""]
  resources: [configmaps, services]
  verbs: ["*"]
`

func benchBinding(name string) string {
	return fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: %s
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: view
subjects:
- apiGroup: rbac.authorization.k8s.io
  kind: Group
  name: %[1]s@example.com
`, name)
}

func benchQuota(name string, pods int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: ResourceQuota
metadata:
  name: %s
spec:
  hard:
    pods: "%d"
    requests.cpu: "8"
    limits.memory: 16Gi
`, name, pods)
}
