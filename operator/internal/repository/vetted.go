package repository

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/files"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/repository/git"
)

// vetted is the tree of a commit or artifact that breaks no rule.
type vetted struct {
	// commit names the commit or artifact.
	commit, author, subject string
	// committed is when the commit was made, as its committer says, or zero if that is unknown.
	committed time.Time
	// content is that of its revision.
	content string
	// path is the directory in the repository, and root the name of the tree.
	path, root string
	declared   []*unstructured.Unstructured
	namespaces int
}

func (v *vetted) isOf(r revision, path string) bool {
	return v != nil && v.commit == r.commit && v.content == r.content && v.path == path
}

func (v *vetted) declares(key declaration) bool {
	return slices.ContainsFunc(v.declared, func(object *unstructured.Unstructured) bool {
		return declarationOf(object) == key
	})
}

// maxViolations is how many violations a status lists.
const maxViolations = 20

// violationsError is the error for a commit with violations. It has the first of them.
type violationsError struct {
	commit     string
	violations []hierarchy.Violation
	count      int
}

func newViolationsError(commit string, violations []hierarchy.Violation, count int) error {
	return &violationsError{commit, slices.Clone(violations[:min(len(violations), maxViolations)]), count}
}

// Error is short enough for a condition, in which more follows.
func (e *violationsError) Error() string {
	first := e.violations[0]
	where := files.Printable(first.Path, files.MaxText)
	if first.Line > 0 {
		where = fmt.Sprintf("%s:%d", where, first.Line)
	}
	text := fmt.Sprintf("%s breaks a rule: %s: %s", named(e.commit), where,
		files.Printable(first.Message, 2*files.MaxText))
	if more := e.count - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

func (e *violationsError) problem() *problem {
	p := &problem{reason: v1alpha1.RepositoryViolations, message: e.Error(), violationCount: e.count}
	for _, violation := range e.violations {
		p.violations = append(p.violations, v1alpha1.RepositoryViolation{
			Path: violation.Path, Line: int32(violation.Line), Rule: violation.Rule, Message: violation.Message, //nolint:gosec // a line of a file
		})
	}
	return p
}

// refusal returns the error for a commit with files that cannot be used.
func refusal(commit, root string, refused files.RefusedFiles) error {
	var violations []hierarchy.Violation
	for _, file := range refused {
		violations = append(violations,
			hierarchy.Violation{Path: path.Join(root, file.Path), Message: file.Message, Remedy: file.Remedy})
	}
	return newViolationsError(commit, violations, len(violations))
}

// isRefusal reports whether an error says that the content of a commit cannot be followed, so that it need not be read
// again. A limit for what does not depend on the commit alone says nothing about the next time.
func isRefusal(err error) bool {
	_, isBroken := errors.AsType[*violationsError](err)
	failed, isKnown := errors.AsType[*files.Error](err)
	return isBroken || isKnown && failed.Reason == files.LimitExceeded && !errors.Is(err, git.ErrBesides) &&
		!errors.Is(err, errSlow)
}

// interruptible is a file system in which no file can be opened any more when its context is done.
type interruptible struct {
	ctx context.Context
	fs.FS
}

func (i interruptible) Open(name string) (fs.File, error) {
	if err := i.ctx.Err(); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return i.FS.Open(name)
}

// maxValues returns how many values a tree may have, so that it fits into the memory of the process.
func maxValues() int {
	return int(min(debug.SetMemoryLimit(-1)/hierarchy.BytesPerValue, hierarchy.MaxTreeValues))
}

// load loads the tree of a commit, and compiles it. The error is a *violationsError if the tree breaks a rule.
func load(ctx context.Context, from fs.FS, commit, root string) ([]*unstructured.Unstructured, error) {
	result, err := hierarchy.LoadWithin(interruptible{ctx, from}, root, maxValues())
	if tooLarge, ok := errors.AsType[*hierarchy.TooLargeError](err); ok {
		return nil, files.Failf(files.LimitExceeded, "%s cannot be followed: %s", named(commit), tooLarge)
	}
	if err != nil {
		return nil, fmt.Errorf("read the tree of %s: %w", named(commit), err)
	}
	if result.ViolationCount > 0 {
		return nil, newViolationsError(commit, result.Violations, result.ViolationCount)
	}
	compiled, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
	if err != nil {
		return nil, fmt.Errorf("compile the tree of %s: %w", named(commit), err)
	}
	return compiled, nil
}

// short returns the part of a hash that people read, such as 1a2b3c4 or sha256:1a2b3c4.
func short(commit string) string {
	start := strings.IndexByte(commit, ':') + 1
	return commit[:min(len(commit), start+7)]
}

// named returns the kind of a revision and the part of its name that people read, such as "commit 1a2b3c4".
func named(commit string) string {
	if strings.Contains(commit, ":") {
		return "artifact " + short(commit)
	}
	return "commit " + short(commit)
}

// readTimeout is how long a source may read, load and compile a downloaded commit while others wait for it.
const readTimeout = 5 * time.Minute

// errSlow is the cause of the end of a context after readTimeout.
var errSlow = errors.New("the commit takes too long to read")

// fetch returns the tree of a commit of a source. The error is a *violationsError if the tree breaks a rule.
func fetch(
	ctx context.Context, from treeSource, commit, directory string, measure measure,
) (*vetted, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var held slot
	defer held.release()
	tree, err := vet(ctx, from, commit, directory, measure, func(ctx context.Context) error {
		if err := held.acquire(ctx); err != nil {
			return err
		}
		// After that, no directory is read and no file opened. A tree that was loaded is compiled nevertheless.
		time.AfterFunc(readTimeout, func() { cancel(errSlow) })
		return nil
	})
	// What a commit was refused for holds, however long that took.
	if err != nil && !isRefusal(err) && errors.Is(context.Cause(ctx), errSlow) {
		return nil, files.Failf(files.LimitExceeded, "%s was not read within %s: divide the tree, or give nstpl-sync more "+
			"CPU", named(commit), readTimeout).Because(errSlow)
	}
	return tree, err
}

// vet downloads a commit, reads its tree when it may, and compiles it.
func vet(
	ctx context.Context, from treeSource, commit, directory string, measure measure, wait wait,
) (*vetted, error) {
	downloaded, read := measure(phaseFetch), func() {}
	c, err := from.read(ctx, commit, directory, func(ctx context.Context) error {
		downloaded()
		if err := wait(ctx); err != nil {
			return err
		}
		read = measure(phaseVet)
		return nil
	})
	root := path.Base(directory)
	if refused, ok := errors.AsType[files.RefusedFiles](err); ok {
		return nil, refusal(commit, root, refused)
	}
	if err != nil {
		return nil, err
	}
	defer c.close()
	defer read()
	compiled, err := load(ctx, c.files, commit, root)
	if err != nil {
		return nil, err
	}
	tree := &vetted{
		commit: commit, content: c.content, author: c.author, subject: c.subject, path: directory, root: root,
		committed: c.committed,
	}
	for _, object := range compiled {
		if inventory.PhaseOf(object.GroupVersionKind().GroupKind()) == inventory.Namespaces {
			tree.namespaces++
		}
	}
	tree.declared, err = inventory.Declare(compiled)
	return tree, err
}
