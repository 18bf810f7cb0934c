//go:build unix

package source_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/source"
)

// both reads paths in the two ways in which commands do.
func both(t *testing.T, check func(t *testing.T, read func(paths ...string) error)) {
	t.Helper()
	t.Run("templates", func(t *testing.T) {
		check(t, func(paths ...string) error {
			_, err := source.ReadAll(paths, strings.NewReader(""))
			return err
		})
	})
	t.Run("objects", func(t *testing.T) {
		check(t, func(paths ...string) error {
			_, err := source.Objects(paths...)
			return err
		})
	})
}

// What is not a regular file is neither followed nor waited for, by its name or in a folder.
func TestReadRefusesIrregularFiles(t *testing.T) {
	both(t, func(t *testing.T, read func(...string) error) {
		t.Helper()
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		require.NoError(t, os.Mkdir(at("real"), 0o755))
		require.NoError(t, os.WriteFile(at("real/quota.yaml"), []byte(quota), 0o600))
		require.NoError(t, read(at("real"), at("real/quota.yaml")))
		for name, target := range map[string]string{
			"file.yaml": at("real/quota.yaml"), "folder": at("real"), "zero.yaml": "/dev/zero",
			"nothing.yaml": at("absent"), "self.yaml": at("self.yaml"),
			"stdin.yaml": "/dev/stdin",
		} {
			require.NoError(t, os.Symlink(target, at(name)))
			require.ErrorContains(t, read(at(name)), "symbolic link", name)
		}
		require.ErrorContains(t, read(at("folder")+"/"), "symbolic link")
		require.NoError(t, read(at("folder")+"/quota.yaml"), "the user chooses the folder")
		require.NoError(t, syscall.Mkfifo(at("pipe.yaml"), 0o600))
		require.ErrorContains(t, read(at("pipe.yaml")), "named pipe")
		listener, err := net.Listen("unix", at("socket.yaml"))
		require.NoError(t, err)
		defer listener.Close()
		require.ErrorContains(t, read(at("socket.yaml")), "socket")
		require.ErrorContains(t, read("/dev/zero"), "device")
		require.ErrorIs(t, read(at("absent.yaml")), os.ErrNotExist)

		// In a folder too, but for what is not read there anyway.
		for _, name := range []string{"file.yaml", "zero.yaml", "pipe.yaml", "socket.yaml"} {
			folder := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(folder, "sub"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "quota.yaml"), []byte(quota), 0o600))
			require.NoError(t, os.Symlink(at("real"), filepath.Join(folder, "README")))
			require.NoError(t, read(folder))
			require.NoError(t, os.Rename(at(name), filepath.Join(folder, "sub", name)))
			require.ErrorContains(t, read(folder), "only regular files and folders are read", name)
		}
	})
}

func TestReadIsBounded(t *testing.T) {
	both(t, func(t *testing.T, read func(...string) error) {
		t.Helper()
		dir := t.TempDir()
		write := func(name string, size int) string {
			name = filepath.Join(dir, name)
			require.NoError(t,
				os.WriteFile(name, append([]byte(quota), bytes.Repeat([]byte("#\n"), (size-len(quota))/2)...), 0o600))
			return name
		}
		large := write("large.yaml", 8<<20+2)
		require.ErrorContains(t, read(large), "large.yaml: it has more than 8 MiB")
		require.ErrorContains(t, read(dir), "large.yaml: it has more than 8 MiB")
		require.NoError(t, os.Remove(large))
		for i := range 9 {
			write(fmt.Sprint(i, ".yaml"), 8<<20-2)
		}
		require.ErrorContains(t, read(dir), "more than 64 MiB in total")
	})
	_, err := source.ReadAll([]string{"-"}, endless{})
	require.ErrorContains(t, err, "standard input: it has more than 8 MiB")
	_, err = source.ReadAll([]string{"-"}, iotest.ErrReader(io.ErrUnexpectedEOF))
	require.ErrorContains(t, err, "standard input: unexpected EOF")
	dir := t.TempDir()
	for i := range 10_001 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".yaml")), nil, 0o600))
	}
	_, err = source.ReadAll([]string{dir}, nil)
	require.ErrorContains(t, err, "more than 10000 files")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// What a shell makes of <(command) is read as a file is.
func TestReadTakesDescriptors(t *testing.T) {
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer reader.Close()
	go func() {
		_, _ = writer.WriteString(quota) // a pipe that nobody reads fails the test below
		_ = writer.Close()
	}()
	files, err := source.Read([]string{fmt.Sprint("/dev/fd/", reader.Fd())}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"quota"}, names(files))
}
