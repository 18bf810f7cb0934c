package repository

import (
	"context"
	"errors"
	"fmt"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/repository/git"
)

// vetted is the tree of a commit that breaks no rule.
type vetted struct {
	commit, author, subject string
	// path is the directory in the repository, and root the name of the tree.
	path, root string
	declared   []*unstructured.Unstructured
	namespaces int
}

// isOf reports whether the tree is that of a commit.
func (v *vetted) isOf(commit, path string) bool {
	return v != nil && v.commit == commit && v.path == path
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
	text := fmt.Sprintf("commit %s breaks a rule: %s: %s", short(e.commit), where, first.Message)
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
func refusal(commit string, files git.RefusedFiles) error {
	var violations []hierarchy.Violation
	for _, file := range files {
		violations = append(violations,
			hierarchy.Violation{Path: file.Path, Message: file.Message, Remedy: file.Remedy})
	}
	return &violationsError{commit, violations}
}

// short returns the part of a hash that people read.
func short(commit string) string { return commit[:min(len(commit), 7)] }

// fetch returns the tree of a commit. The error is a *violationsError if the tree breaks a rule.
func fetch(
	ctx context.Context, remote *git.Remote, hash, directory string, keys map[string][]byte,
) (*vetted, error) {
	commit, err := remote.Fetch(ctx, hash)
	if err != nil {
		return nil, err
	}
	defer commit.Close()
	if keys != nil {
		if _, err := git.Verify(commit, keys); err != nil {
			return nil, err
		}
	}
	root := path.Base(directory)
	files, err := commit.Files(directory)
	if refused, ok := errors.AsType[git.RefusedFiles](err); ok {
		return nil, refusal(hash, refused)
	}
	if err != nil {
		return nil, err
	}
	result, err := hierarchy.Load(files, root)
	if err != nil {
		return nil, fmt.Errorf("read the tree of commit %s: %w", short(hash), err)
	}
	if len(result.Violations) > 0 {
		return nil, &violationsError{hash, result.Violations}
	}
	compiled, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
	if err != nil {
		return nil, fmt.Errorf("compile the tree of commit %s: %w", short(hash), err)
	}
	tree := &vetted{commit: commit.Hash, author: commit.Author, subject: commit.Subject, path: directory, root: root}
	for _, object := range compiled {
		if inventory.PhaseOf(object.GroupVersionKind().GroupKind()) == inventory.Namespaces {
			tree.namespaces++
		}
	}
	tree.declared, err = inventory.Declare(compiled)
	return tree, err
}
