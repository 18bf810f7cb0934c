package git_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/repository/git"
	"nstpl.dev/nstpl/test/gittest"
)

const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"

// random returns content that cannot be compressed.
func random(bytes int) string {
	content := make([]byte, bytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	return string(content)
}

func TestTrees(t *testing.T) {
	t.Parallel()
	submodule := strings.Repeat("12", 20)
	tests := map[string]struct {
		commit gittest.Commit
		path   string
		want   map[string]string // the files, or
		reason git.Reason        // the reason of an error, or
		text   string            // the text of the error
	}{
		"a file that is executable": {
			gittest.Commit{Executables: map[string]string{"t/a.sh": "x"}}, "t", map[string]string{"a.sh": "x"}, "", "",
		},
		"nothing": {gittest.Commit{}, "", map[string]string{}, "", ""},
		"directories of tools, whatever is in them": {
			gittest.Commit{
				Files:      map[string]string{"a": "1", ".github/x": pointer, ".config/y": "y", ".gitignore": "z"},
				Submodules: map[string]string{".tools": submodule},
			}, ".", map[string]string{"a": "1", ".gitignore": "z"}, "", "",
		},
		"a path below the directory of a tool": {
			gittest.Commit{Files: map[string]string{".config/policies/a": "1"}}, ".config/policies",
			map[string]string{"a": "1"}, "", "",
		},
		"trouble outside of the path": {
			gittest.Commit{
				Files:      map[string]string{"t/a": "1", "big": random(9 << 20), "lfs": pointer},
				Submodules: map[string]string{"sub": submodule},
			}, "/t/", map[string]string{"a": "1"}, "", "",
		},
		"a file that only mentions LFS": {
			gittest.Commit{Files: map[string]string{"a": "# version https://git-lfs.github.com/spec/v1\n"}}, "",
			map[string]string{"a": "# version https://git-lfs.github.com/spec/v1\n"}, "", "",
		},
		"a path that does not exist": {
			gittest.Commit{Files: map[string]string{"t/a": "1"}}, "t/b/c", nil,
			git.NotFound, `the path "t/b/c" does not exist in the commit `,
		},
		"a path that is a file": {
			gittest.Commit{Files: map[string]string{"t/a": "1"}}, "t/a", nil,
			git.InvalidContent, `the path "t/a" is or contains a file in the commit `,
		},
		"a path below a file": {
			gittest.Commit{Files: map[string]string{"t/a": "1"}}, "t/a/b", nil,
			git.InvalidContent, `the path "t/a/b" is or contains a file in the commit `,
		},
		"a path over a link": {
			gittest.Commit{Files: map[string]string{"t/a": "1"}, Symlinks: map[string]string{"l": "t"}}, "l", nil,
			git.InvalidContent, `the path "l" leads over a symbolic link in the commit `,
		},
		"a path into a submodule": {
			gittest.Commit{Submodules: map[string]string{"sub": submodule}}, "sub/t", nil,
			git.InvalidContent, `the path "sub/t" leads into a submodule in the commit `,
		},
		"a path to the parent": {
			gittest.Commit{Files: map[string]string{"t/a": "1"}}, "t/../t", nil,
			git.InvalidConfiguration, `the path "t/../t" contains ..`,
		},
		"a submodule": {
			gittest.Commit{Files: map[string]string{"t/a": "1"}, Submodules: map[string]string{"t/sub": submodule}},
			"t", nil,
			"", "sub: it is a submodule, whose files are in another repository: replace it with the files themselves",
		},
		"a pointer of LFS": {
			gittest.Commit{Files: map[string]string{"t/a.yaml": pointer}}, "t", nil,
			"", "a.yaml: it is a pointer to a file in Git LFS, and not the file itself: remove it from LFS",
		},
		"several": {
			gittest.Commit{
				Files:      map[string]string{"z": pointer, "a/lfs": pointer, "\x1b[31mx": pointer},
				Submodules: map[string]string{"b": submodule},
			}, "", nil,
			"", "[31mx: it is a pointer to a file in Git LFS, and not the file itself: remove it from LFS: git lfs untrack, " +
				"then git add --renormalize (and 3 more in the tree)",
		},
		"a huge file": {
			gittest.Commit{Files: map[string]string{"t/a.bin": random(9 << 20)}}, "t", nil,
			"", "a.bin: it is larger than 8 MiB",
		},
		"a file that compresses well": {
			gittest.Commit{Files: map[string]string{"t/a.bin": strings.Repeat("a", 20<<20)}}, "t", nil,
			"", "a.bin: it is larger than 8 MiB",
		},
		"files that are large together": {
			gittest.Commit{Files: func() map[string]string {
				files := map[string]string{}
				for i := range 9 {
					files[fmt.Sprint("t/", i)] = strings.Repeat("x", 8<<20)
				}
				return files
			}()}, "t", nil,
			git.LimitExceeded, "have more than 64 MiB together: select a smaller path",
		},
		"directories without end": {
			gittest.Commit{Files: map[string]string{strings.Repeat("d/", 130) + "a": "1"}}, "", nil,
			git.LimitExceeded, "directories are nested more than 128 levels deep",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, gittest.HTTPS{})
			s.Commit(t, test.commit)
			commit := fetch(t, s.remote(t))
			if test.text == "" {
				require.Equal(t, test.want, contents(t, commit, test.path))
				return
			}
			_, err := commit.Files(t.Context(), test.path)
			if test.reason != "" {
				requireError(t, err, test.reason, test.text)
				return
			}
			var refused git.RefusedFiles
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Error(), test.text)
		})
	}
}

// A file that the server omitted because it is large is refused, as one that it sent.
func TestFilter(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	s.Git(t, "config", "uploadpack.allowFilter", "true")
	s.Commit(t, gittest.Commit{Files: map[string]string{"big": random(9 << 20), "t/small": random(8 << 20)}})
	s.maxBytes = 9 << 20
	commit := fetch(t, s.remote(t))
	require.Len(t, contents(t, commit, "t"), 1)
	_, err := commit.Files(t.Context(), "")
	require.EqualError(t, err, "big: it is larger than 8 MiB, or the server did not send it: move it out of the tree")
	commit = fetchHash(t, s.remote(t), commit.Hash) // from the directory
	_, err = commit.Files(t.Context(), "")
	require.ErrorContains(t, err, "big: it is larger than 8 MiB")
}

func TestSymlinks(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	files := fooCorp()
	s.Commit(t, gittest.Commit{Files: files, Symlinks: map[string]string{
		"foo-corp/out": "/etc/passwd", "foo-corp/lfs": pointer, "foo-corp/loop": "loop",
	}})
	tree, err := fetch(t, s.remote(t)).Files(t.Context(), "foo-corp")
	require.NoError(t, err)
	entries, err := fs.ReadDir(tree, ".")
	require.NoError(t, err)
	links := 0
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			links++
		}
	}
	require.Equal(t, 3, links)
	content, err := fs.ReadFile(tree, "out")
	require.NoError(t, err)
	require.Equal(t, "/etc/passwd", string(content), "a link is not followed")
	result, err := hierarchy.Load(tree, "foo-corp")
	require.NoError(t, err)
	var violations []string
	for _, v := range result.Violations {
		violations = append(violations, v.Rule+" "+v.Path)
	}
	require.Subset(t, violations, []string{"symlink foo-corp/out", "symlink foo-corp/lfs", "symlink foo-corp/loop"})
}

// The file system behaves as one, also with files of all sizes and kinds.
func TestFileSystem(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	s.Commit(t, gittest.Commit{
		Files: map[string]string{
			"empty": "", "a/b/c": "1", "a/b.c": "2", "a/b-c": "3", "ä.yaml": "4", "large": random(2 << 20),
		},
		Executables: map[string]string{"run": "#!/bin/sh"},
	})
	files, err := fetch(t, s.remote(t)).Files(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(files, "empty", "a/b/c", "a/b.c", "a/b-c", "ä.yaml", "large", "run"))
	_, err = fs.Stat(files, "a/missing")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = fs.Stat(files, "a/b/c/d")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = fs.ReadDir(files, "empty")
	require.Error(t, err, "empty is a file")
	stat, err := fs.Stat(files, "run")
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), stat.Mode())
	require.Equal(t, gittest.Start, stat.ModTime())
}

func TestPackLimit(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	s.Commit(t, gittest.Commit{Files: map[string]string{"a": random(2 << 20)}})
	s.maxBytes = 1 << 20
	remote := s.remote(t)
	hash, err := remote.Resolve(t.Context())
	require.NoError(t, err)
	_, err = remote.Fetch(t.Context(), hash)
	requireError(t, err, git.LimitExceeded, "has more than 1 MiB in compressed form: keep policies in a repository")
	require.NotErrorIs(t, err, git.ErrBesides)
	requireEmpty(t, s.options.Dir)

	s.Commit(t, gittest.Commit{Files: map[string]string{"a": strings.Repeat("a", 17<<20)}})
	hash, err = remote.Resolve(t.Context())
	require.NoError(t, err)
	_, err = remote.Fetch(t.Context(), hash)
	requireError(t, err, git.LimitExceeded, "expand to more than 16 MiB")
	requireEmpty(t, s.options.Dir)
}

// thousands returns files of policies in as many directories.
func thousands(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("corp/org-%02d/team-%04d/namespace.yaml", i%50, i)] =
			fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team-%04d\n", i)
	}
	return files
}

func TestThousandsOfFiles(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	want := thousands(5000)
	s.Commit(t, gittest.Commit{Files: want})
	require.Equal(t, below(want, "corp"), contents(t, fetch(t, s.remote(t)), "corp"))
}

// A tree that contains the same directory very often is small in the repository, and has files without end.
func TestTreeBomb(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	blob := s.GitWithInput(t, "bomb", "hash-object", "-w", "--stdin")
	tree := s.GitWithInput(t, "100644 blob "+blob+"\ta\n", "mktree")
	for range 20 {
		var lines strings.Builder
		for i := range 10 {
			fmt.Fprintf(&lines, "040000 tree %s\td%d\n", tree, i)
		}
		tree = s.GitWithInput(t, lines.String(), "mktree")
	}
	s.Git(t, "update-ref", "refs/heads/main", s.Git(t, "commit-tree", "-m", "bomb", tree))
	_, err := fetch(t, s.remote(t)).Files(t.Context(), "")
	requireError(t, err, git.LimitExceeded, "has more than 20000 files and directories")
}

// Entries need memory even if they are left out, as long as the directories beside them are read. So they are counted
// before: here, reading the directory would be another error.
func TestEntriesOfEachKindAreCounted(t *testing.T) {
	t.Parallel()
	for entry, submodule := range map[string]string{"file": "", "directory of a tool": strings.Repeat("12", 20)} {
		t.Run(entry, func(t *testing.T) {
			t.Parallel()
			s := serve(t, gittest.HTTPS{})
			file := "100644 blob " + s.GitWithInput(t, "", "hash-object", "-w", "--stdin") + "\t"
			invalid := s.GitWithInput(t, file+strings.Repeat("n", 300)+"\n", "mktree")
			line := file + "z%05d\n"
			if submodule != "" {
				line = "160000 commit " + submodule + "\t.z%05d\n"
			}
			var lines strings.Builder
			fmt.Fprintf(&lines, "040000 tree %s\t-\n", invalid)
			for i := range 20_000 {
				fmt.Fprintf(&lines, line, i)
			}
			tree := s.GitWithInput(t, lines.String(), "mktree")
			s.Git(t, "update-ref", "refs/heads/main", s.Git(t, "commit-tree", "-m", "bomb", tree))
			_, err := fetch(t, s.remote(t)).Files(t.Context(), "")
			requireError(t, err, git.LimitExceeded, "has more than 20000 files and directories")
		})
	}
}

// Others wait while directories are read, so that has an end, too.
func TestReadingDirectoriesEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	s.Commit(t, gittest.Commit{Files: fooCorp()})
	canceled, cancel := context.WithCancel(t.Context())
	commit := fetch(t, s.remote(t))
	cancel()
	_, err := commit.Files(canceled, "foo-corp")
	require.ErrorIs(t, err, context.Canceled)
}

// Names that git itself would not write must not confuse those who read the tree.
func TestMaliciousNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".", "..", "a/b", strings.Repeat("n", 300)} {
		s := serve(t, gittest.HTTPS{})
		blob := s.GitWithInput(t, "x", "hash-object", "-w", "--stdin")
		s.push(t, "100644", name, blob)
		_, err := fetch(t, s.remote(t)).Files(t.Context(), "")
		requireError(t, err, git.InvalidContent, `the directory "." of the commit `)
	}
}

// push commits a tree with one entry, which git does not check.
func (s *served) push(t *testing.T, mode, name, hash string) {
	t.Helper()
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "%s %s\x00", mode, name)
	for i := 0; i < len(hash); i += 2 {
		var b byte
		_, err := fmt.Sscanf(hash[i:i+2], "%02x", &b)
		require.NoError(t, err)
		raw.WriteByte(b)
	}
	tree := s.GitWithInput(t, raw.String(), "hash-object", "-t", "tree", "-w", "--stdin", "--literally")
	s.Git(t, "update-ref", "refs/heads/main", s.Git(t, "commit-tree", "-m", "x", tree))
}

// Fetch stops when its context is done, also between two objects.
func TestFetchCanceled(t *testing.T) {
	t.Parallel()
	s := serve(t, gittest.HTTPS{})
	hash := s.Commit(t, gittest.Commit{Files: fooCorp()})
	remote := s.remote(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := remote.Fetch(ctx, hash)
	require.ErrorIs(t, err, context.Canceled)
	fetchHash(t, remote, hash)
	_, err = remote.Fetch(ctx, hash)
	require.ErrorIs(t, err, context.Canceled)
	fetchHash(t, remote, hash)
}
