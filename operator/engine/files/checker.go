package files

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Limits bounds a tree. All sizes are in bytes.
type Limits struct {
	File  int64 // a file of the tree
	Tree  int64 // all files of the tree
	Files int   // the number of files and directories of the tree
	Depth int   // levels of directories
}

// DefaultLimits returns the limits of every tree.
func DefaultLimits() Limits { return Limits{File: 8 << 20, Tree: 64 << 20, Files: 20_000, Depth: 128} }

// CleanPath returns the path of a directory without needless elements, or "." for the root.
func CleanPath(at string) (string, error) {
	if strings.ContainsRune(at, 0) || strings.Contains("/"+at+"/", "/../") {
		return "", Failf(InvalidConfiguration, "the path %q contains .. or a control character: "+
			"write the path of a directory, from the root of the repository", Printable(at, MaxText))
	}
	if clean := strings.Trim(path.Clean("/"+at), "/"); clean != "" {
		return clean, nil
	}
	return ".", nil
}

// IsIgnored reports whether a directory is left out. Directories whose names begin with a dot belong to tools.
func IsIgnored(directory string) bool { return strings.HasPrefix(directory, ".") }

// IsName reports whether a file can have this name.
func IsName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
}

// Checker counts the files of a tree, and collects those that cannot be used.
type Checker struct {
	limits Limits
	// of is what the tree belongs to, such as "the commit 1a2b3c".
	of      string
	count   int
	bytes   int64
	refused RefusedFiles
}

// NewChecker returns a Checker for a tree of a commit or artifact.
func NewChecker(of string, limits Limits) *Checker { return &Checker{limits: limits, of: of} }

// Deep fails if a directory is too many levels below the root of the tree.
func (c *Checker) Deep(levels int) error {
	if levels > c.limits.Depth {
		return Failf(LimitExceeded, "directories are nested more than %d levels deep in %s", c.limits.Depth, c.of)
	}
	return nil
}

// Count counts a file or directory, and fails if there are too many.
func (c *Checker) Count() error {
	if c.count++; c.count > c.limits.Files {
		return Failf(LimitExceeded, "the tree of %s has more than %d files and directories: select a smaller path",
			c.of, c.limits.Files)
	}
	return nil
}

// Measure refuses a file that is too large, and fails if all files together are too large. It reports whether the
// content may be read.
func (c *Checker) Measure(at string, size int64) (bool, error) {
	if size > c.limits.File {
		c.RefuseLarge(at, "")
		return false, nil
	}
	if c.bytes += size; c.bytes > c.limits.Tree {
		return false, Failf(LimitExceeded, "the files in the tree of %s have more than %s together: "+
			"select a smaller path", c.of, Size(c.limits.Tree))
	}
	return true, nil
}

// RefuseLarge refuses a file that is too large. or is another possible cause, or "".
func (c *Checker) RefuseLarge(at, or string) {
	c.Refuse(at, fmt.Sprintf("it is larger than %s%s", Size(c.limits.File), or), "move it out of the tree")
}

// RefusePointer refuses a pointer to a file in Git LFS.
func (c *Checker) RefusePointer(at string) {
	c.Refuse(at, "it is a pointer to a file in Git LFS, and not the file itself",
		"remove it from LFS: git lfs untrack, then git add --renormalize")
}

// RefuseSubmodule refuses a submodule.
func (c *Checker) RefuseSubmodule(at string) {
	c.Refuse(at, "it is a submodule, whose files are in another repository", "replace it with the files themselves")
}

// Refuse refuses a file, with what it is and what would make it work.
func (c *Checker) Refuse(at, message, remedy string) {
	c.refused = append(c.refused, RefusedFile{Path: Printable(at, MaxText), Message: message, Remedy: remedy})
}

// Err returns RefusedFiles, or nil if no file was refused.
func (c *Checker) Err() error {
	if len(c.refused) == 0 {
		return nil
	}
	slices.SortStableFunc(c.refused, func(a, b RefusedFile) int { return strings.Compare(a.Path, b.Path) })
	return c.refused
}

var lfsPointer = regexp.MustCompile(`^version https://(git-lfs\.github\.com|hawser\.github\.com)/spec/v1\s`)

// MaxPointer is the size of the largest pointer of Git LFS.
const MaxPointer = 1024

// IsPointer reports whether a file is a pointer of Git LFS. It needs the first MaxPointer bytes.
func IsPointer(start []byte, size int64) bool { return size <= MaxPointer && lfsPointer.Match(start) }
