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

// Limits on the files that one command reads.
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

// inputs collects the files that are read, within the limits.
type inputs struct {
	read  []input
	bytes int
	// unread are subdirectories with files that -R would read.
	unread []string
}

// readInputs reads everything that the flags select.
func readInputs(from Filenames, stdin io.Reader) (inputs, error) {
	in := inputs{}
	if from.Kustomization != "" {
		return in, in.addKustomization(from.Kustomization)
	}
	for _, path := range from.Paths {
		if err := in.add(path, from.Recursive, stdin); err != nil {
			return inputs{}, err
		}
	}
	return in, nil
}

// add reads a file, the files in a directory, a URL, or standard input if the path is "-". It returns an error for
// symbolic links, devices and named pipes, except for open files of this process, such as /dev/stdin.
func (i *inputs) add(path string, recursive bool, stdin io.Reader) error {
	switch {
	case path == "-":
		return i.readAll("standard input", stdin)
	case isURL(path):
		return i.addURL(path)
	case isDescriptor(path):
		return i.addDescriptor(path)
	}
	path = filepath.Clean(path) // with a trailing slash, Lstat would follow a symbolic link
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return i.addFile(path, info)
	}
	return i.addDirectory(path, recursive)
}

func (i *inputs) addDirectory(dir string, recursive bool) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		if within := filepath.Dir(path); within != dir && !recursive {
			if !slices.Contains(i.unread, within) {
				i.unread = append(i.unread, within)
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return i.addFile(path, info)
	})
}

// isDescriptor reports whether a path names an open file of this process. A shell passes such a path for <(command).
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

// addFile reads a regular file. It returns an error if the file is not the one that info describes, since it may have
// been replaced after the check.
func (i *inputs) addFile(path string, info fs.FileInfo) error {
	if kind := irregularKind(info.Mode()); kind != "" {
		return &fs.PathError{
			Op: "read", Path: path, Err: fmt.Errorf("is a %s, not a regular file or directory", kind),
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
		return &fs.PathError{Op: "read", Path: path, Err: errors.New("the file was replaced while it was read")}
	}
	return i.readAll(path, file)
}

// irregularKind returns the kind of a file that is not a regular file. It returns "" for a regular file.
func irregularKind(mode fs.FileMode) string {
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
		return "directory"
	}
	return "device"
}

func (i *inputs) readAll(name string, r io.Reader) error {
	if len(i.read) == maxFiles {
		return fmt.Errorf("read %s: more than %d files: specify fewer", name, maxFiles)
	}
	content, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(content) > maxFileBytes {
		return fmt.Errorf("read %s: larger than %d MiB: split the file", name, maxFileBytes>>20)
	}
	if i.bytes += len(content); i.bytes > maxTotalBytes {
		return fmt.Errorf("read %s: the files are larger than %d MiB in total: specify fewer", name, maxTotalBytes>>20)
	}
	i.read = append(i.read, input{name, content})
	return nil
}
