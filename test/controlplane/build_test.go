package controlplane

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// notify is an io.Writer that sends each write to a channel.
type notify chan string

func (n notify) Write(p []byte) (int, error) {
	n <- string(p)
	return len(p), nil
}

func TestLockLetsOneBuildAndTheOthersWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, io.Discard)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = lock(ctx, path, io.Discard)
	require.ErrorIs(t, err, context.Canceled)

	progress, locked := make(notify), make(chan error)
	go func() {
		unlockToo, err := lock(t.Context(), path, progress)
		if err == nil {
			unlockToo()
		}
		locked <- err
	}()
	require.Contains(t, <-progress, "waiting for another process")
	unlock()
	require.NoError(t, <-locked)
}

func TestBuildShowsWhyItFailsAndCanBeRepeated(t *testing.T) {
	programs := program{binaries: []binary{{name: "several", links: []string{"one", "two"}}, {name: "single"}}}
	src := source{program: programs, dir: t.TempDir(), version: "1.2.3", modfile: "go.mod"}
	assets := filepath.Join(t.TempDir(), "assets")
	write := func(name, content string) {
		path := filepath.Join(src.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	write("go.mod", "module example.org/controlplane\n\ngo 1.26.0\n")
	write("single/main.go", "package main\n\nfunc main() { println(\"hello\") }\n")
	write("several/main.go", "package main\n\nfunc main() { run() }\n")
	require.ErrorContains(t, src.build(t.Context(), assets, io.Discard), "undefined: run")
	require.NoDirExists(t, assets)

	write("several/main.go", "package main\n\nfunc main() { println(\"hello\") }\n")
	require.NoError(t, src.build(t.Context(), assets, io.Discard))
	for _, name := range []string{"one", "two", "single"} {
		out, err := exec.Command(filepath.Join(assets, name)).CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, "hello\n", string(out))
	}
}
