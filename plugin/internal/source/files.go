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

// What one command reads. Files may come from strangers, as the folder of a pull request does.
const (
	maxFileBytes  = 8 << 20
	maxTotalBytes = 64 << 20
	maxFiles      = 10_000
)

// input is a file, or standard input, that was read.
type input struct {
	name    string
	content []byte
}

// inputs reads files within the limits.
type inputs struct {
	read  []input
	bytes int
}

// add reads a file, the .yaml, .yml and .json files of a folder, or standard input if the path is "-". Symbolic links, devices and named
// pipes are errors, but for the descriptors that a shell opens: /dev/stdin and /dev/fd/63.
func (i *inputs) add(path string, stdin io.Reader) error {
	switch {
	case path == "-":
		return i.readAll("standard input", stdin)
	case isDescriptor(path):
		return i.addDescriptor(path)
	}
	path = filepath.Clean(path) // the slash at the end of a link would have it followed
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

// isDescriptor reports whether a path names a descriptor of this process, which a shell makes of <(command).
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

// addFile reads a regular file that was found to be as info says.
func (i *inputs) addFile(path string, info fs.FileInfo) error {
	if kind := irregular(info.Mode()); kind != "" {
		return &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("it is a %s: only regular files and folders are read", kind)}
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

// irregular returns what a file is that is not a regular one, or "".
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
