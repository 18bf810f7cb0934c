package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
)

const pod = `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: ` + PodImage + `
    securityContext:
      runAsUser: 12345
      runAsGroup: 23456
`

const ownerEnv = "NSTPL_TEST_NODE_OWNER"

// Some tests need another process that owns a node or a slot: this program, called with ownerEnv set.
func TestMain(m *testing.M) {
	own := map[string]func() (any, error){"node": ownNode, "slot": ownSlot}[os.Getenv(ownerEnv)]
	if own == nil {
		os.Exit(m.Run())
	}
	if err := keep(own); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// keep prints what it owns, and owns it until the input ends.
func keep(own func() (any, error)) error {
	owned, err := own()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(owned); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

type ownedNode struct{ Dir, Slot, Kubectl, Kubeconfig string }

func ownNode() (any, error) {
	cluster, err := Start(context.Background(), os.Stderr)
	if err != nil {
		return nil, err
	}
	return ownedNode{cluster.dir, cluster.slot.name(), cluster.Kubectl, cluster.Kubeconfig}, nil
}

// lastSlot is a slot that nodes acquire only if all others are acquired.
const lastSlot = slots - 1

func ownSlot() (any, error) {
	owned, err := acquireNumber(context.Background(), lastSlot)
	if err != nil {
		return nil, err
	}
	return owned.name(), nil
}

// startOwner starts another process that owns a node or a slot.
func startOwner(t *testing.T, what string) (owner *exec.Cmd, output io.Reader) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	owner = exec.CommandContext(t.Context(), self)
	owner.Env = append(os.Environ(), ownerEnv+"="+what)
	owner.Stderr = t.Output()
	_, err = owner.StdinPipe() // open until this process ends
	require.NoError(t, err)
	output, err = owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	return owner, output
}

func startNode(t *testing.T) *Cluster {
	t.Helper()
	cluster, err := Start(t.Context(), t.Output())
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(cluster.Logs())
		}
		require.NoError(t, cluster.Stop())
	})
	return cluster
}

func kubectl(t *testing.T, path, kubeconfig string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(pod)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// runsPods fails unless the node runs a pod.
func runsPods(t *testing.T, path, kubeconfig string) {
	t.Helper()
	kubectl(t, path, kubeconfig, "apply", "-f", "-")
	kubectl(t, path, kubeconfig, "wait", "--for=condition=Ready", "pod/web", "--timeout=1m")
	require.Equal(t, "uid=12345 gid=23456\n", kubectl(t, path, kubeconfig, "exec", "web", "--", "/pod", "id"))
}

// requireRemoved fails if parts of a node are left.
func requireRemoved(t *testing.T, cluster *Cluster) {
	t.Helper()
	links, err := exec.CommandContext(t.Context(), "ip", "-oneline", "link").Output()
	require.NoError(t, err)
	require.NotContains(t, string(links), " "+cluster.slot.name()+"@")
	mounts, err := os.ReadFile("/proc/mounts")
	require.NoError(t, err)
	require.NotContains(t, string(mounts), cluster.dir)
	require.NoDirExists(t, cluster.dir)
	for _, group := range cluster.slot.controlGroups() {
		require.NoDirExists(t, group)
	}
}

// A node runs pods, and leaves nothing behind.
func TestNode(t *testing.T) {
	marks.OnNode(t, Lacks(t.Context()))
	cluster := startNode(t)
	runsPods(t, cluster.Kubectl, cluster.Kubeconfig)
	require.NoError(t, cluster.RestartKubelet(t.Context()))
	require.Equal(t, "uid=12345 gid=23456\n",
		kubectl(t, cluster.Kubectl, cluster.Kubeconfig, "exec", "web", "--", "/pod", "id"))
	require.NoError(t, cluster.Stop())
	requireRemoved(t, cluster)
}

// Two processes start a node at the same time, as go test does for several packages. When one of them is killed, the
// other's node continues to run, and another node can be started.
func TestNodesOfTwoProcesses(t *testing.T) {
	marks.OnNode(t, Lacks(t.Context()))
	owner, output := startOwner(t, "node")
	mine := startNode(t)
	var other ownedNode
	require.NoError(t, json.NewDecoder(output).Decode(&other))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(other.Dir)) })
	require.NotEqual(t, mine.slot.name(), other.Slot)
	runsPods(t, mine.Kubectl, mine.Kubeconfig)
	runsPods(t, other.Kubectl, other.Kubeconfig)

	require.NoError(t, owner.Process.Kill())
	require.Error(t, owner.Wait(), "it was killed")
	next := startNode(t)
	runsPods(t, next.Kubectl, next.Kubeconfig)
	require.Equal(t, "uid=12345 gid=23456\n",
		kubectl(t, mine.Kubectl, mine.Kubeconfig, "exec", "web", "--", "/pod", "id"))
	for _, cluster := range []*Cluster{mine, next} {
		require.NoError(t, cluster.Stop())
		requireRemoved(t, cluster)
	}
}

// The first time, compiling the control plane takes longer than a node may take to start. Start compiles it before.
func TestStartCompilesBeforeItsTimeBegins(t *testing.T) {
	assets, err := controlplane.BuildNode(t.Context(), t.Output())
	require.NoError(t, err)
	compiler, err := exec.LookPath("go")
	require.NoError(t, err)
	cache, bin := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(cache, "nstpl"), 0o755))
	require.NoError(t, os.Symlink(filepath.Dir(assets), filepath.Join(cache, "nstpl", "node")))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"),
		[]byte("#!/bin/sh\n[ \"$1\" = list ] && exec "+compiler+" \"$@\"\necho cannot compile >&2\nexit 1\n"), 0o755))
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))

	_, err = Start(t.Context(), t.Output())
	require.ErrorContains(t, err, "cannot compile")
	require.NotContains(t, err.Error(), "start a node", "the time for the start has begun")
}

// A slot belongs to one process until that ends, even if it is killed.
func TestSlotIsAcquiredOnce(t *testing.T) {
	owner, output := startOwner(t, "slot")
	var name string
	require.NoError(t, json.NewDecoder(output).Decode(&name))
	_, err := acquireNumber(t.Context(), lastSlot)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	free, err := acquireSlot(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, name, free.name())
	require.NoError(t, free.release())

	require.NoError(t, owner.Process.Kill())
	require.Error(t, owner.Wait(), "it was killed")
	left, err := acquireNumber(t.Context(), lastSlot)
	require.NoError(t, err)
	require.Equal(t, name, left.name())
	require.NoError(t, left.release())
}

// The link of a killed process may still exist when its slot is acquired again.
func TestSlotWithALink(t *testing.T) {
	marks.OnNode(t, Lacks(t.Context()))
	last, err := acquireNumber(t.Context(), lastSlot)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, last.release()) })
	out, err := exec.CommandContext(t.Context(), "ip", "link", "add", last.name(), "type", "bridge").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, last.linkExists())
	require.NoError(t, last.disconnect())
	require.False(t, last.linkExists())
	require.NoError(t, last.disconnect())
}
