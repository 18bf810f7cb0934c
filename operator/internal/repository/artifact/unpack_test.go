package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/files"
)

// entry is an entry of an archive.
type entry struct {
	name    string
	content string
	kind    byte // a regular file if 0, or a directory if the name ends with a slash
	link    string
	pax     map[string]string
}

// pack returns an archive of files.
func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, e := range entries {
		header := &tar.Header{
			Name: e.name, Typeflag: e.kind, Linkname: e.link, PAXRecords: e.pax, Size: int64(len(e.content)),
			Mode: 0o644,
		}
		switch {
		case e.kind == tar.TypeXGlobalHeader:
			header = &tar.Header{Typeflag: e.kind, PAXRecords: e.pax}
		case e.kind == 0 && strings.HasSuffix(e.name, "/"):
			header.Typeflag = tar.TypeDir
		case e.kind == 0:
			header.Typeflag = tar.TypeReg
		}
		require.NoError(t, w.WriteHeader(header))
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, compressed.Close())
	return out.Bytes()
}

func compress(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

// contents returns all files of a file system, and directories with a slash at the end.
func contents(t testing.TB, from fs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(from, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			if name != "." {
				all[name+"/"] = ""
			}
			return nil
		}
		content, err := fs.ReadFile(from, name)
		if e.Type()&fs.ModeSymlink != 0 {
			content = append([]byte("-> "), content...)
		}
		all[name] = string(content)
		return err
	}))
	return all
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		directory string
		entries   []entry
		want      map[string]string
	}{
		"a directory": {
			directory: "foo-corp",
			entries: []entry{
				{name: "README.md", content: "no"}, {name: "foo-corp", kind: tar.TypeDir},
				{name: "foo-corp/b/namespace.yaml", content: "b"}, {name: "foo-corp/a.yaml", content: "a"},
				{name: "foo-corp-2/a.yaml", content: "no"}, {name: "x/foo-corp/a.yaml", content: "no"},
			},
			want: map[string]string{"a.yaml": "a", "b/": "", "b/namespace.yaml": "b"},
		},
		"a deeper directory, whose files are listed before it": {
			directory: "/clusters/foo-corp/",
			entries: []entry{
				{name: "./clusters/foo-corp/a/b.yaml", content: "b"},
				{name: "./clusters/foo-corp/a/", kind: tar.TypeDir},
				{name: "./clusters/", kind: tar.TypeDir},
			},
			want: map[string]string{"a/": "", "a/b.yaml": "b"},
		},
		"the root": {
			directory: ".",
			entries:   []entry{{name: "./", kind: tar.TypeDir}, {name: "a.yaml", content: "a"}},
			want:      map[string]string{"a.yaml": "a"},
		},
		"an empty directory": {
			directory: "foo-corp", entries: []entry{{name: "foo-corp/", kind: tar.TypeDir}}, want: map[string]string{},
		},
		"directories of tools": {
			directory: "foo-corp",
			entries: []entry{
				{name: "foo-corp/.git/config", content: "no"},
				{name: "foo-corp/a/.github/x", kind: tar.TypeLink, link: "y"},
				{name: "foo-corp/.hidden.yaml", content: "file"}, {name: "foo-corp/.x", kind: tar.TypeDir},
			},
			want: map[string]string{".hidden.yaml": "file"},
		},
		"symbolic links are not followed": {
			directory: "foo-corp",
			entries: []entry{
				{name: "foo-corp/a", kind: tar.TypeSymlink, link: "../../etc/passwd"},
				{name: "elsewhere", kind: tar.TypeFifo},
			},
			want: map[string]string{"a": "-> ../../etc/passwd"},
		},
		"the header that git archive writes": {
			directory: "foo-corp",
			entries: []entry{
				{kind: tar.TypeXGlobalHeader, pax: map[string]string{"comment": "1a2b"}},
				{name: "foo-corp/a", content: "a"},
			},
			want: map[string]string{"a": "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, err := files.CleanPath(test.directory)
			require.NoError(t, err)
			from, err := unpack(t.Context(), pack(t, test.entries...), "the artifact", at, defaultLimits())
			require.NoError(t, err)
			require.Equal(t, test.want, contents(t, from))
		})
	}
}

// block returns a header as GNU tar writes it, which the package archive/tar would not write.
func block(kind byte, size string, fields map[int][]byte) []byte {
	header := make([]byte, 512)
	copy(header, "foo-corp/a.yaml")
	copy(header[100:], "0000644\x000000000\x000000000\x00"+size+"\x0000000000000\x00        "+string(kind))
	copy(header[257:], "ustar  \x00")
	for at, value := range fields {
		copy(header[at:], value)
	}
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return header
}

// hole returns an archive with a file that consists of a hole of 8 EiB.
func hole(t *testing.T) []byte {
	t.Helper()
	huge := []byte{0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe}
	header := block(tar.TypeGNUSparse, "00000000000", map[int][]byte{386: huge, 398: []byte("00000000000"), 483: huge})
	return compress(t, append(header, make([]byte, 1024)...))
}

func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	small := defaultLimits()
	small.unpacked, small.entries = 1<<20, 100
	small.tree = files.Limits{File: 100, Tree: 250, Files: 10, Depth: 5}
	deep := strings.Repeat("d/", 6)
	many := func(format string) []byte {
		var entries []entry
		for i := range 101 {
			entries = append(entries, entry{name: fmt.Sprintf(format, i)})
		}
		return pack(t, entries...)
	}
	for name, test := range map[string]struct {
		archive []byte
		reason  files.Reason
		err     string
	}{
		"no archive": {
			[]byte("<html>"), files.InvalidContent,
			"the artifact is not a complete tar archive that is compressed by gzip",
		},
		"nothing": {nil, files.InvalidContent, "is not a complete tar archive"},
		"another format": {
			compress(t, bytes.Repeat([]byte("x"), 1024)), files.InvalidContent, "is not a complete tar archive",
		},
		"a truncated archive": {
			pack(t, entry{name: "foo-corp/a.yaml", content: strings.Repeat("a", 90)})[:60], files.InvalidContent,
			"is not a complete tar archive",
		},
		"an absolute path": {
			pack(t, entry{name: "/etc/passwd"}), files.InvalidContent,
			`"/etc/passwd", which is an absolute path: nothing`,
		},
		"a path that leaves the archive": {
			pack(t, entry{name: "foo-corp/../../a"}), files.InvalidContent, `a path with ..`,
		},
		"a path that leaves it at its end": {
			pack(t, entry{name: "foo-corp/.."}), files.InvalidContent, `a path with ..`,
		},
		"a long path": {
			pack(t, entry{name: strings.Repeat("a/", 1000) + "b"}), files.InvalidContent, "which is not a valid path",
		},
		"a long name": {
			pack(t, entry{name: "foo-corp/" + strings.Repeat("a", 256)}), files.InvalidContent,
			"which is not a valid path",
		},
		"a file twice": {
			pack(t, entry{name: "foo-corp/a"}, entry{name: "./foo-corp//a"}), files.InvalidContent,
			`"a", which occurs twice`,
		},
		"a file twice, refused first": {
			pack(t, entry{name: "foo-corp/a", kind: tar.TypeLink, link: "b"}, entry{name: "foo-corp/a"}),
			files.InvalidContent,
			`"a", which occurs twice`,
		},
		"a file and directory": {
			pack(t, entry{name: "foo-corp/a"}, entry{name: "foo-corp/a/b"}), files.InvalidContent,
			`"a", which is a file and a directory`,
		},
		"a file below a symbolic link": {
			pack(t, entry{name: "foo-corp/a", kind: tar.TypeSymlink, link: "/etc"}, entry{name: "foo-corp/a/passwd"}),
			files.InvalidContent, `"a", which is a file and a directory`,
		},
		"a directory that is a file too": {
			pack(t, entry{name: "foo-corp/a/b"}, entry{name: "foo-corp/a"}), files.InvalidContent,
			`"a", which occurs twice`,
		},
		"no such directory": {
			pack(t, entry{name: "foo-corp2/a"}), files.NotFound, `the path "foo-corp" does not exist in the artifact`,
		},
		"a path to a symbolic link": {
			pack(t, entry{name: "foo-corp", kind: tar.TypeSymlink, link: "x"}, entry{name: "x/a"}),
			files.InvalidContent,
			`the path "foo-corp" is or contains a file or a link in the artifact: write the path of a directory`,
		},
		"a hard link": {
			pack(t, entry{name: "foo-corp/a", kind: tar.TypeLink, link: "/etc/passwd"}), "",
			"a: it is a hard link: replace it with a copy of the file",
		},
		"devices": {
			pack(t, entry{name: "foo-corp/b", kind: tar.TypeBlock}, entry{name: "foo-corp/a", kind: tar.TypeFifo}), "",
			"a: it is not a file, directory or link: remove it (and 1 more in the tree)",
		},
		"a hole of 8 EiB": {hole(t), "", "a.yaml: it is a sparse file: make the archive without holes in files"},
		"a pointer of LFS": {
			pack(t, entry{
				name: "foo-corp/a", content: "version https://git-lfs.github.com/spec/v1\noid sha256:1a\nsize 1\n",
			}),
			"", "a: it is a pointer to a file in Git LFS",
		},
		"a large file": {
			pack(t, entry{name: "foo-corp/a", content: strings.Repeat("a", 101)}), "", "a: it is larger than 100 bytes",
		},
		"large files": {
			pack(t, entry{name: "foo-corp/a", content: strings.Repeat("a", 90)},
				entry{name: "foo-corp/b", content: strings.Repeat("b", 90)},
				entry{name: "foo-corp/c", kind: tar.TypeSymlink, link: strings.Repeat("c", 90)}), files.LimitExceeded,
			"the files in the tree of the artifact have more than 250 bytes together: select a smaller path",
		},
		"many files": {
			many("foo-corp/%d"), files.LimitExceeded, "has more than 10 files and directories: select a smaller path",
		},
		"many directories": {many("foo-corp/%d/"), files.LimitExceeded, "has more than 10 files and directories"},
		"many other files": {many("%d"), files.LimitExceeded, "the artifact has more than 100 files and directories"},
		"deep directories": {
			pack(t, entry{name: "foo-corp/" + deep + "a"}), files.LimitExceeded, "are nested more than 5 levels deep",
		},
		"zeros, which mark the end": {
			compress(t, make([]byte, 10<<20)), files.NotFound, `the path "foo-corp" does not exist`,
		},
		"a bomb in a file that is not in the tree": {
			pack(t, entry{name: "bomb", content: strings.Repeat("\x00", 10<<20)}), files.LimitExceeded,
			"the artifact expands to more than 1 MiB",
		},
		"a large header": {
			compress(t, append(block('x', "00010000000", nil), bytes.Repeat([]byte("x"), 2<<20)...)),
			files.LimitExceeded,
			"the artifact expands to more than 1 MiB",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := unpack(t.Context(), test.archive, "the artifact", "foo-corp", small)
			require.ErrorContains(t, err, test.err)
			if test.reason == "" {
				require.IsType(t, files.RefusedFiles{}, err)
				return
			}
			failed, ok := errors.AsType[*files.Error](err)
			require.True(t, ok, "%T", err)
			require.Equal(t, test.reason, failed.Reason, failed.Message)
		})
	}
}

// Sparse files in the formats of PAX are refused, too.
func TestPAXSparseFilesAreRefused(t *testing.T) {
	t.Parallel()
	require.True(t,
		isSparse(&tar.Header{Typeflag: tar.TypeReg, PAXRecords: map[string]string{"GNU.sparse.major": "1"}}))
	require.False(t, isSparse(&tar.Header{Typeflag: tar.TypeReg, PAXRecords: map[string]string{"mtime": "1"}}))
}

// A download that is no longer wanted stops while it is unpacked.
func TestUnpackStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := unpack(ctx, pack(t, entry{name: "a"}), "the artifact", ".", defaultLimits())
	require.ErrorIs(t, err, context.Canceled)
}

// No archive makes unpack panic, or return more than the limits allow, or a path outside the archive.
func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, entry{name: "foo-corp/a/b.yaml", content: "a: b"},
		entry{name: "foo-corp/c", kind: tar.TypeSymlink, link: "/"}))
	f.Add(pack(f, entry{name: "foo-corp/../../a"}, entry{name: "/a"}))
	f.Add([]byte("x"))
	l := defaultLimits()
	l.unpacked, l.entries, l.tree = 1<<20, 50, files.Limits{File: 1000, Tree: 5000, Files: 20, Depth: 5}
	f.Fuzz(func(t *testing.T, archive []byte) {
		if uncompressed := len(archive) > 0 && archive[0] != 0x1f; uncompressed {
			archive = compress(t, archive) // so that the fuzzer changes headers, too
		}
		from, err := unpack(t.Context(), archive, "the artifact", "foo-corp", l)
		if err != nil {
			return
		}
		var size, count int64
		require.NoError(t, fs.WalkDir(from, ".", func(name string, e fs.DirEntry, err error) error {
			require.NoError(t, err)
			require.True(t, fs.ValidPath(name))
			if count++; !e.IsDir() {
				content, err := fs.ReadFile(from, name)
				require.NoError(t, err)
				size += int64(len(content))
			}
			return nil
		}))
		require.LessOrEqual(t, size, l.tree.Tree)
		require.LessOrEqual(t, count, int64(l.tree.Files)+1)
		require.Less(t, size, int64(math.MaxInt32))
	})
}
