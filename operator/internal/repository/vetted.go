package repository

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/repository/files"
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

// isOf reports whether the tree is that of a revision.
func (v *vetted) isOf(r revision, path string) bool {
	return v != nil && v.commit == r.commit && v.content == r.content && v.path == path
}

// declares reports whether the tree has a declaration.
func (v *vetted) declares(key declaration) bool {
	return slices.ContainsFunc(v.declared, func(object *unstructured.Unstructured) bool {
		return declarationOf(object) == key
	})
}

// maxViolations is how many violations a status lists.
const maxViolations = 20

// violationsError is the error for a commit with violations.
type violationsError struct {
	commit     string
	violations []hierarchy.Violation
}

func (e *violationsError) Error() string {
	first := e.violations[0]
	where := first.Path
	if first.Line > 0 {
		where = fmt.Sprintf("%s:%d", first.Path, first.Line)
	}
	text := fmt.Sprintf("%s breaks a rule: %s: %s", named(e.commit), where, first.Message)
	if more := len(e.violations) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

func (e *violationsError) problem() *problem {
	p := &problem{reason: reasonViolations, message: e.Error(), violationCount: len(e.violations)}
	for _, violation := range e.violations[:min(len(e.violations), maxViolations)] {
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
	return &violationsError{commit, violations}
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

// fetch returns the tree of a commit of a source. The error is a *violationsError if the tree breaks a rule.
func fetch(
	ctx context.Context, from treeSource, commit, directory string, measure measure,
) (*vetted, error) {
	fetched := measure(phaseFetch)
	c, err := from.read(ctx, commit, directory)
	root := path.Base(directory)
	if refused, ok := errors.AsType[files.RefusedFiles](err); ok {
		return nil, refusal(commit, root, refused)
	}
	if err != nil {
		return nil, err
	}
	defer c.close()
	fetched()
	defer measure(phaseVet)()
	result, err := hierarchy.Load(c.files, root)
	if err != nil {
		return nil, fmt.Errorf("read the tree of %s: %w", named(commit), err)
	}
	if len(result.Violations) > 0 {
		return nil, &violationsError{commit, result.Violations}
	}
	compiled, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
	if err != nil {
		return nil, fmt.Errorf("compile the tree of %s: %w", named(commit), err)
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
