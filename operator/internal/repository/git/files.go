package git

import (
	"context"
	"io/fs"

	"nstpl.dev/nstpl/operator/engine/files"
)

// Files returns the directory at a path of the commit, such as foo-corp, or the root for "" and ".". The directories
// are read at once, and the contents of files when they are opened. Symbolic links have fs.ModeSymlink, and are not
// followed. Directories whose names begin with a dot are left out.
//
// Files returns RefusedFiles if the tree has submodules, pointers of Git LFS or files of more than 8 MiB, and an Error
// if the path is not a directory or the tree is too large. It stops when ctx is done.
//
// The result is safe for concurrent use.
func (c *Commit) Files(ctx context.Context, at string) (fs.FS, error) {
	clean, err := files.CleanPath(at)
	if err != nil {
		return nil, err
	}
	root, err := c.readTree(ctx, clean)
	if err != nil {
		return nil, err
	}
	return files.NewFS(root, c.When), nil
}
