package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"nstpl.dev/nstpl/operator/engine/files"
)

// unpack returns a directory of a compressed archive. source describes the archive in errors.
func unpack(ctx context.Context, content []byte, source, directory string, l limits) (fs.FS, error) {
	u := &unpacker{
		source: source, directory: directory, limits: l, checker: files.NewChecker(source, l.tree),
		nodes: map[string]*files.Node{".": {Name: ".", Mode: fs.ModeDir | 0o755}},
	}
	packed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, u.malformed(err)
	}
	u.archive = tar.NewReader(files.Bounded(ctx, packed, l.unpacked, u.tooLong()))
	if err := u.readAll(); err != nil {
		return nil, err
	}
	if err := u.checker.Err(); err != nil {
		return nil, err
	}
	if !u.exists {
		return nil, files.Failf(files.NotFound, "the path %q does not exist in %s",
			files.Printable(directory, files.MaxText), source)
	}
	for _, n := range u.nodes {
		n.Sort()
	}
	return files.NewFS(u.nodes["."], time.Time{}), nil
}

// unpacker reads the files in a directory of an archive.
type unpacker struct {
	source    string
	directory string // "." for the root
	limits    limits
	archive   *tar.Reader
	checker   *files.Checker
	// nodes has the files and directories below the directory, by path.
	nodes map[string]*files.Node
	// exists reports whether the directory exists.
	exists bool
}

// malformed returns the error for an archive that cannot be read.
func (u *unpacker) malformed(err error) error {
	if known, ok := errors.AsType[*files.Error](err); ok {
		return known
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return files.Failf(files.InvalidContent, "%s is not a complete tar archive that is compressed by gzip", u.source).
		Because(err)
}

func (u *unpacker) tooLong() error {
	return files.Failf(files.LimitExceeded,
		"%s expands to more than %s: have it contain only policies, for example by "+
			"spec.ignore of the source", u.source, files.Size(u.limits.unpacked))
}

// invalid returns the error for an entry that no archive of policies has.
func (u *unpacker) invalid(name, why string) error {
	return files.Failf(files.InvalidContent, "%s contains %q, %s: nothing of it is used", u.source,
		files.Printable(name, files.MaxText), why)
}

// readAll reads all entries of the archive.
func (u *unpacker) readAll() error {
	for count := 1; ; count++ {
		header, err := u.archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return u.malformed(err)
		}
		if count > u.limits.entries {
			return files.Failf(files.LimitExceeded, "%s has more than %d files and directories: have it contain only "+
				"policies", u.source, u.limits.entries)
		}
		if err := u.read(header); err != nil {
			return err
		}
	}
}

// maxPath is the length of the longest path in an archive, in bytes.
const maxPath = 1024

// read reads an entry, if it is below the directory.
func (u *unpacker) read(header *tar.Header) error {
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name := header.Name
	switch {
	case strings.HasPrefix(name, "/"):
		return u.invalid(name, "which is an absolute path")
	case strings.Contains("/"+name+"/", "/../"):
		return u.invalid(name, "a path with ..")
	case len(name) > maxPath || strings.ContainsRune(name, 0):
		return u.invalid(name, "which is not a valid path")
	}
	name = path.Clean(name)
	below := name
	if u.directory != "." {
		if strings.HasPrefix(u.directory+"/", name+"/") && header.Typeflag != tar.TypeDir {
			return files.Failf(files.InvalidContent,
				"the path %q is or contains a file or a link in %s: write the path of a "+
					"directory", files.Printable(u.directory, files.MaxText), u.source)
		}
		rest, isBelow := strings.CutPrefix(name, u.directory+"/")
		if !isBelow {
			u.exists = u.exists || name == u.directory
			return nil
		}
		below = rest
	}
	u.exists = true
	if below == "." || isIgnored(below, header.Typeflag == tar.TypeDir) {
		return nil
	}
	return u.add(header, below)
}

// isIgnored reports whether a file or directory is, or is in, a directory that is left out.
func isIgnored(name string, isDirectory bool) bool {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		if files.IsIgnored(part) && (isDirectory || i < len(parts)-1) {
			return true
		}
	}
	return false
}

// add adds an entry below the directory.
func (u *unpacker) add(header *tar.Header, name string) error {
	if header.Typeflag == tar.TypeDir {
		_, err := u.makeDirectory(name)
		return err
	}
	parent, err := u.makeDirectory(path.Dir(name))
	if err != nil {
		return err
	}
	if u.nodes[name] != nil {
		return u.invalid(name, "which occurs twice")
	}
	if err := u.checker.Count(); err != nil {
		return err
	}
	if !files.IsName(path.Base(name)) {
		return u.invalid(name, "which is not a valid path")
	}
	node := &files.Node{Name: path.Base(name), Mode: 0o644}
	// A refused file keeps its name, so that it cannot occur again.
	u.nodes[name] = node
	parent.Children = append(parent.Children, node)
	return u.fill(node, header, name)
}

// makeDirectory returns a directory, and creates it and those above it if they do not exist: archives need not list
// directories.
func (u *unpacker) makeDirectory(name string) (*files.Node, error) {
	if node := u.nodes[name]; node != nil {
		if !node.Mode.IsDir() {
			return nil, u.invalid(name, "which is a file and a directory")
		}
		return node, nil
	}
	if err := u.checker.Deep(strings.Count(name, "/") + 1); err != nil {
		return nil, err
	}
	parent, err := u.makeDirectory(path.Dir(name))
	if err != nil {
		return nil, err
	}
	if err := u.checker.Count(); err != nil {
		return nil, err
	}
	if !files.IsName(path.Base(name)) {
		return nil, u.invalid(name, "which is not a valid path")
	}
	node := &files.Node{Name: path.Base(name), Mode: fs.ModeDir | 0o755}
	u.nodes[name] = node
	parent.Children = append(parent.Children, node)
	return node, nil
}

// fill sets the content of a file, or refuses it.
func (u *unpacker) fill(node *files.Node, header *tar.Header, name string) error {
	switch {
	case header.Typeflag == tar.TypeSymlink:
		target := []byte(header.Linkname)
		node.Mode, node.Size = fs.ModeSymlink|0o777, int64(len(target))
		node.Read = func() ([]byte, error) { return target, nil }
		_, err := u.checker.Measure(name, node.Size)
		return err
	case header.Typeflag == tar.TypeLink:
		u.checker.Refuse(name, "it is a hard link", "replace it with a copy of the file")
		return nil
	case isSparse(header):
		u.checker.Refuse(name, "it is a sparse file", "make the archive without holes in files")
		return nil
	case header.Typeflag != tar.TypeReg:
		u.checker.Refuse(name, "it is not a file, directory or link", "remove it")
		return nil
	}
	node.Size = header.Size
	if usable, err := u.checker.Measure(name, header.Size); !usable || err != nil {
		return err
	}
	content := make([]byte, header.Size)
	if _, err := io.ReadFull(u.archive, content); err != nil {
		return u.malformed(err)
	}
	if files.IsPointer(content[:min(len(content), files.MaxPointer)], node.Size) {
		u.checker.RefusePointer(name)
	}
	node.Read = func() ([]byte, error) { return content, nil }
	return nil
}

// isSparse reports whether a file has holes, which an archive describes in a few bytes, whatever their size.
func isSparse(header *tar.Header) bool {
	if header.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}
