package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"nstpl.dev/nstpl/test/controlplane"
)

// The keeper is this program with other arguments, also in tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == keeperCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestUpAndDown(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { require.NoError(t, down(context.Background(), dir)) })

	export := requireUp(t, dir)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.Equal(t, "export KUBECONFIG="+kubeconfig+"\n", export)
	client := newClient(t, kubeconfig)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	require.NoError(t, err)

	require.Equal(t, export, requireUp(t, dir))
	_, err = client.CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err, "a second up must change nothing")

	killKeeper(t, dir)
	require.Equal(t, export, requireUp(t, dir))
	_, err = newClient(t, kubeconfig).CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "after a crash the data must be new, got %v", err)

	require.NoError(t, down(t.Context(), dir))
	requireOnlyLock(t, dir)
	require.NoError(t, down(t.Context(), dir))
}

func TestUpRefusesAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	lock, err := openLock(dir)
	require.NoError(t, err)
	defer lock.Close()
	free, err := lock.tryLock()
	require.NoError(t, err)
	require.True(t, free)
	require.NoError(t, lock.sign("1.2.3"))

	require.ErrorContains(t, up(t.Context(), dir, new(bytes.Buffer)), "kubernetes 1.2.3 is running here")
}

// After a reboot, the number in the lock can belong to any process. Here it belongs to this test.
func TestDownSparesProcessesThatDontHoldTheLock(t *testing.T) {
	dir := t.TempDir()
	stale := fmt.Appendf(nil, "%d %s\n", os.Getpid(), controlplane.DefaultVersion)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lock"), stale, 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "data"), 0o755))

	require.NoError(t, down(t.Context(), dir))
	requireOnlyLock(t, dir)
}

func TestShellQuote(t *testing.T) {
	require.Equal(t, "/home/me/.cluster/kubeconfig", shellQuote("/home/me/.cluster/kubeconfig"))
	require.Equal(t, `'/my files/it'\''s/$HOME'`, shellQuote("/my files/it's/$HOME"))
}

func requireUp(t *testing.T, dir string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, up(t.Context(), dir, &out))
	return out.String()
}

func newClient(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func killKeeper(t *testing.T, dir string) {
	t.Helper()
	lock, err := openLock(dir)
	require.NoError(t, err)
	defer lock.Close()
	pid, _, err := lock.holder()
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		free, err := lock.tryLock()
		return err == nil && free
	}, time.Minute, poll/10)
}

func requireOnlyLock(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, "lock", entries[0].Name())
}
