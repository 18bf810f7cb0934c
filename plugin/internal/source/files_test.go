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

// withBothReaders runs a check with each of the two functions that read files: ReadAll and Objects.
func withBothReaders(t *testing.T, check func(t *testing.T, read func(paths ...string) error)) {
	t.Helper()
	t.Run("templates", func(t *testing.T) {
		check(t, func(paths ...string) error {
			_, err := source.ReadAll(source.Filenames{Paths: paths, Recursive: true}, strings.NewReader(""))
			return err
		})
	})
	t.Run("objects", func(t *testing.T) {
		check(t, func(paths ...string) error {
			_, _, err := source.Objects(source.Filenames{Paths: paths, Recursive: true}, strings.NewReader(""))
			return err
		})
	})
}

// Symbolic links, devices, named pipes and sockets are errors, as arguments and in directories.
func TestReadRejectsIrregularFiles(t *testing.T) {
	withBothReaders(t, func(t *testing.T, read func(...string) error) {
		t.Helper()
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		require.NoError(t, os.Mkdir(at("real"), 0o755))
		require.NoError(t, os.WriteFile(at("real/quota.yaml"), []byte(quota), 0o600))
		require.NoError(t, read(at("real"), at("real/quota.yaml")))
		for name, target := range map[string]string{
			"file.yaml": at("real/quota.yaml"), "link": at("real"), "zero.yaml": "/dev/zero",
			"nothing.yaml": at("absent"), "self.yaml": at("self.yaml"),
			"stdin.yaml": "/dev/stdin",
		} {
			require.NoError(t, os.Symlink(target, at(name)))
			require.ErrorContains(t, read(at(name)), "symbolic link", name)
		}
		require.ErrorContains(t, read(at("link")+"/"), "symbolic link")
		require.NoError(t, read(at("link")+"/quota.yaml"), "the argument may name a directory by a link")
		require.NoError(t, syscall.Mkfifo(at("pipe.yaml"), 0o600))
		require.ErrorContains(t, read(at("pipe.yaml")), "named pipe")
		listener, err := net.Listen("unix", at("socket.yaml"))
		require.NoError(t, err)
		defer listener.Close()
		require.ErrorContains(t, read(at("socket.yaml")), "socket")
		require.ErrorContains(t, read("/dev/zero"), "device")
		require.ErrorIs(t, read(at("absent.yaml")), os.ErrNotExist)

		// In a directory, files with other extensions are ignored.
		for _, name := range []string{"file.yaml", "zero.yaml", "pipe.yaml", "socket.yaml"} {
			directory := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(directory, "sub"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(directory, "quota.yaml"), []byte(quota), 0o600))
			require.NoError(t, os.Symlink(at("real"), filepath.Join(directory, "README")))
			require.NoError(t, read(directory))
			require.NoError(t, os.Rename(at(name), filepath.Join(directory, "sub", name)))
			require.ErrorContains(t, read(directory), "not a regular file or directory", name)
		}
	})
}

func TestReadLimitsSizeAndNumberOfFiles(t *testing.T) {
	withBothReaders(t, func(t *testing.T, read func(...string) error) {
		t.Helper()
		dir := t.TempDir()
		write := func(name string, size int) string {
			name = filepath.Join(dir, name)
			require.NoError(t,
				os.WriteFile(name, append([]byte(quota), bytes.Repeat([]byte("#\n"), (size-len(quota))/2)...), 0o600))
			return name
		}
		large := write("large.yaml", 8<<20+2)
		require.ErrorContains(t, read(large), "large.yaml: larger than 8 MiB")
		require.ErrorContains(t, read(dir), "large.yaml: larger than 8 MiB")
		require.NoError(t, os.Remove(large))
		for i := range 9 {
			write(fmt.Sprint(i, ".yaml"), 8<<20-2)
		}
		require.ErrorContains(t, read(dir), "larger than 64 MiB in total")
	})
	_, err := source.ReadAll(source.Filenames{Paths: []string{"-"}}, endless{})
	require.ErrorContains(t, err, "standard input: larger than 8 MiB")
	_, err = source.ReadAll(source.Filenames{Paths: []string{"-"}}, iotest.ErrReader(io.ErrUnexpectedEOF))
	require.ErrorContains(t, err, "standard input: unexpected EOF")
	dir := t.TempDir()
	for i := range 10_001 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".yaml")), nil, 0o600))
	}
	_, err = source.ReadAll(source.Filenames{Paths: []string{dir}}, nil)
	require.ErrorContains(t, err, "more than 10000 files")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A shell replaces <(command) with the path of an open file, which may be a pipe.
func TestReadAcceptsOpenFiles(t *testing.T) {
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer reader.Close()
	go func() {
		_, _ = writer.WriteString(quota) // an error also fails the read below
		_ = writer.Close()
	}()
	files, _, err := source.Read(source.Filenames{Paths: []string{fmt.Sprint("/dev/fd/", reader.Fd())}}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"quota"}, names(files))
}
