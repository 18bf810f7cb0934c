package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"nstpl.dev/nstpl/operator/engine/gitops"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// write writes files below the directory of --output-directory, and prints for each whether it was changed, as kubectl
// does. The directory may be in a repository whose authors are not trusted, so symbolic links are not followed.
func (h *hydrate) write(files []gitops.File) error {
	if isLink(os.Lstat(h.directory)) {
		return fmt.Errorf("%s is a symbolic link: specify the directory that it leads to", h.directory)
	}
	if err := os.MkdirAll(h.directory, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(h.directory)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, file := range files {
		var content bytes.Buffer
		if err := output.YAMLStream(&content, file.Objects); err != nil {
			return err
		}
		name := filepath.Join(h.directory, filepath.FromSlash(file.Path))
		for _, part := range []string{path.Dir(file.Path), file.Path} {
			if isLink(root.Lstat(part)) {
				link := filepath.Join(h.directory, filepath.FromSlash(part))
				return fmt.Errorf("%s is a symbolic link: remove it", link)
			}
		}
		change, err := writeFile(root, file.Path, content.Bytes())
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		output.Line(h.Out, "%s %s", name, change)
	}
	return nil
}

// isLink reports whether something exists and is a symbolic link.
func isLink(info fs.FileInfo, err error) bool { return err == nil && info.Mode()&fs.ModeSymlink != 0 }

// writeFile creates or changes a file and the directories that it is in. It returns what it did. A file that already
// has the content is not written.
func writeFile(root *os.Root, name string, content []byte) (change string, err error) {
	old, err := root.ReadFile(name)
	switch {
	case err == nil && bytes.Equal(old, content):
		return "unchanged", nil
	case err == nil:
		change = "changed"
	case errors.Is(err, fs.ErrNotExist):
		change = "created"
	default:
		return "", err
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return "", err
	}
	return change, root.WriteFile(name, content, 0o644)
}
