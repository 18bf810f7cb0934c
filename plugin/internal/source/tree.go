package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// Tree reads the tree of policies in a directory. The root policyspace has the name of the directory. Tree reads no
// files outside of the directory.
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
			Op: "read", Path: dir, Err: errors.New("not a directory: specify the directory of the root policyspace"),
		}
	}
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	return hierarchy.Load(root.FS(), filepath.Base(absolute))
}
