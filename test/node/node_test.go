package node_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/node"
)

const pod = `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: ` + node.PodImage + `
    securityContext:
      runAsUser: 12345
      runAsGroup: 23456
`

// A node runs pods, and nothing of it is left.
func TestNode(t *testing.T) {
	if lacks := node.Lacks(t.Context()); lacks != "" {
		t.Skip(lacks)
	}
	cluster, err := node.Start(t.Context(), t.Output())
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(cluster.Logs())
		}
		require.NoError(t, cluster.Stop())
		links, err := exec.Command("ip", "link").Output()
		require.NoError(t, err)
		require.NotContains(t, string(links), "nstpl-node")
		mounts, err := os.ReadFile("/proc/mounts")
		require.NoError(t, err)
		require.NotContains(t, string(mounts), "nstpl-node")
	})
	kubectl := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), cluster.Kubectl, append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
		cmd.Stdin = strings.NewReader(pod)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	kubectl("apply", "-f", "-")
	kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=1m")
	require.Equal(t, "uid=12345 gid=23456\n", kubectl("exec", "web", "--", "/pod", "id"))
	require.NoError(t, cluster.RestartKubelet(t.Context()))
	require.Equal(t, "uid=12345 gid=23456\n", kubectl("exec", "web", "--", "/pod", "id"))
}
