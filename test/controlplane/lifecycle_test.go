package controlplane_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/controlplane"
)

const ownerEnv = "NSTPL_TEST_OWNER"

// The tests below need another process that owns a cluster: this program, called with ownerEnv set.
func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) == "" {
		os.Exit(m.Run())
	}
	if err := own(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// own starts a cluster, prints its folder, and stops the cluster after the first line of input. It ends at the end of
// the input.
func own() error {
	cluster, err := controlplane.Start(context.Background(), controlplane.Options{})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, cluster.Dir)
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	if err := cluster.Stop(); err != nil {
		return err
	}
	if err := os.NewFile(3, "offspring").Close(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// owner is a process that runs own.
type owner struct {
	*exec.Cmd
	in        io.WriteCloser
	dir       string   // the folder of its cluster
	offspring *os.File // at its end when neither the owner nor a process that it started has the other end open
}

func startOwner(t *testing.T) owner {
	t.Helper()
	offspring, held, err := os.Pipe()
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), ownerEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{held}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		require.NoError(t, offspring.Close())
	})
	require.NoError(t, held.Close())
	dir, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	o := owner{Cmd: cmd, in: in, dir: strings.TrimSpace(dir), offspring: offspring}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(o.dir)) })
	require.ErrorIs(t, o.awaitEnd(100*time.Millisecond), os.ErrDeadlineExceeded, "the cluster must be running")
	return o
}

// awaitEnd waits for the end of the owner's processes.
func (o owner) awaitEnd(timeout time.Duration) error {
	if err := o.offspring.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := io.ReadAll(o.offspring)
	return err
}

func TestStopRemovesEverything(t *testing.T) {
	t.Parallel()
	o := startOwner(t)
	_, err := fmt.Fprintln(o.in, "stop")
	require.NoError(t, err)
	require.NoError(t, o.awaitEnd(time.Minute))
	require.NoDirExists(t, o.dir)
}

func TestKillingTheOwnerEndsEveryProcess(t *testing.T) {
	t.Parallel()
	o := startOwner(t)
	require.NoError(t, o.Process.Kill())
	require.NoError(t, o.awaitEnd(time.Minute))
}

func TestFailedStartShowsWhyAndRemovesEverything(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cluster")
	_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, APIServerArgs: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "kube-apiserver has ended by itself")
	require.ErrorContains(t, err, "unknown flag: --no-such-flag")
	require.NoDirExists(t, dir)
}

func TestUnknownVersionShowsWhichAreKnown(t *testing.T) {
	t.Parallel()
	_, err := controlplane.Build(t.Context(), "1.2.3", io.Discard)
	require.ErrorContains(t, err, "kubernetes 1.2.3 can't be built here: choose one of "+controlplane.DefaultVersion)
}
