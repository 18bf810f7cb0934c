package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Limits of what one command reads.
const (
	maxFileBytes  = 8 << 20
	maxTotalBytes = 64 << 20
	maxFiles      = 10_000
)

// input is the content of a file or of standard input.
type input struct {
	name    string
	content []byte
}

// inputs holds what was read so far, within the limits.
type inputs struct {
	read  []input
	bytes int
}

// add reads a file, the .yaml, .yml and .json files of a folder, or standard input if the path is "-". Symbolic links,
// devices and named pipes are errors, except for the descriptors that a shell opens, such as /dev/stdin and /dev/fd/63.
func (i *inputs) add(path string, stdin io.Reader) error {
	switch {
	case path == "-":
		return i.readAll("standard input", stdin)
	case isDescriptor(path):
		return i.addDescriptor(path)
	}
	path = filepath.Clean(path) // a slash at the end would follow a symbolic link
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return i.addFile(path, info)
	}
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return i.addFile(path, info)
	})
}

// isDescriptor reports whether a path names an open file of this process, as a shell writes for <(command).
func isDescriptor(path string) bool {
	path = filepath.Clean(path)
	return path == "/dev/stdin" || slices.Contains([]string{"/dev/fd", "/proc/self/fd"}, filepath.Dir(path))
}

func (i *inputs) addDescriptor(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return i.readAll(path, file)
}

// addFile reads a regular file. Info is what the path was before: it is an error if another file took its place.
func (i *inputs) addFile(path string, info fs.FileInfo) error {
	if kind := irregular(info.Mode()); kind != "" {
		return &fs.PathError{
			Op: "read", Path: path, Err: fmt.Errorf("it is a %s: only regular files and folders are read", kind),
		}
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, opened) {
		return &fs.PathError{Op: "read", Path: path, Err: errors.New("it was replaced while it was read")}
	}
	return i.readAll(path, file)
}

// irregular returns the kind of a file that is not a regular one, or "" for a regular one.
func irregular(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return ""
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode.IsDir():
		return "folder"
	}
	return "device"
}

func (i *inputs) readAll(name string, r io.Reader) error {
	if len(i.read) == maxFiles {
		return fmt.Errorf("read %s: there are more than %d files: name fewer", name, maxFiles)
	}
	content, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(content) > maxFileBytes {
		return fmt.Errorf("read %s: it has more than %d MiB: split it", name, maxFileBytes>>20)
	}
	if i.bytes += len(content); i.bytes > maxTotalBytes {
		return fmt.Errorf("read %s: the files have more than %d MiB in total: name fewer", name, maxTotalBytes>>20)
	}
	i.read = append(i.read, input{name, content})
	return nil
}
