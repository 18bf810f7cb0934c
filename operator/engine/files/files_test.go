package files

import (
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

func file(name, content string) *Node {
	return &Node{
		Name: name, Mode: 0o644, Size: int64(len(content)), Read: func() ([]byte, error) { return []byte(content), nil },
	}
}

func TestFS(t *testing.T) {
	t.Parallel()
	root := &Node{Name: ".", Mode: fs.ModeDir | 0o755, Children: []*Node{
		file("b.yaml", "b"), {Name: "a", Mode: fs.ModeDir | 0o755, Children: []*Node{file("c.yaml", "c")}},
	}}
	root.Sort()
	require.NoError(t, fstest.TestFS(NewFS(root, time.Unix(1, 0)), "a/c.yaml", "b.yaml"))
}

func TestCleanPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"": ".", ".": ".", "/": ".", "a": "a", "/a//b/./c/": "a/b/c", "a..b": "a..b", "a/../b": "", "..": "", "a\x00": "",
	} {
		clean, err := CleanPath(path)
		if want == "" {
			require.Error(t, err, "%q", path)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, clean)
	}
}

func TestChecker(t *testing.T) {
	t.Parallel()
	c := NewChecker("the commit 1a", Limits{File: 10, Tree: 15, Files: 2, Depth: 1})
	require.NoError(t, c.Err())
	usable, err := c.Measure("b", 10)
	require.NoError(t, err)
	require.True(t, usable)
	usable, err = c.Measure("large", 11)
	require.NoError(t, err)
	require.False(t, usable)
	c.RefusePointer("a\x1b")
	require.EqualError(t, c.Err(), "a: it is a pointer to a file in Git LFS, and not the file itself: remove it from LFS: "+
		"git lfs untrack, then git add --renormalize (and 1 more in the tree)")
	_, err = c.Measure("c", 6)
	require.EqualError(t, err,
		"the files in the tree of the commit 1a have more than 15 bytes together: select a smaller path")
	require.NoError(t, c.Deep(1))
	require.EqualError(t, c.Deep(2), "directories are nested more than 1 levels deep in the commit 1a")
	require.NoError(t, c.Count())
	require.NoError(t, c.Count())
	require.EqualError(t, c.Count(),
		"the tree of the commit 1a has more than 2 files and directories: select a smaller path")
}
