package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// Tree reads the tree of policies in a folder. The root policyspace has the folder's name. Nothing outside of the
// folder is read.
func Tree(dir string) (result *hierarchy.Result, err error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(absolute)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &fs.PathError{
			Op: "read", Path: dir, Err: errors.New("it is no directory: name the one of the root policyspace"),
		}
	}
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return hierarchy.Load(root.FS(), filepath.Base(absolute))
}
