// Package gittest makes Git repositories for tests, and serves them over HTTPS and SSH with the git program. It ignores
// the configuration of the user and of the machine.
package gittest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Repository is a bare repository.
type Repository struct {
	// Dir is the directory of the repository. Its name ends with .git.
	Dir string
}

// Init creates an empty bare repository with a name, such as policies.git, in a directory.
func Init(t testing.TB, root, name string) *Repository {
	t.Helper()
	r, err := Create(t.Context(), root, name)
	require.NoError(t, err)
	return r
}

// Create is Init for programs that are not tests.
func Create(ctx context.Context, root, name string) (*Repository, error) {
	r := &Repository{Dir: filepath.Join(root, name)}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return nil, err
	}
	_, err := r.run(ctx, "", "init", "--quiet", "--bare", "--initial-branch=main")
	return r, err
}

// Git runs git in the repository and returns its output, without the last line feed.
func (r *Repository) Git(t testing.TB, args ...string) string {
	t.Helper()
	return r.GitWithInput(t, "", args...)
}

// GitWithInput is Git with a standard input.
func (r *Repository) GitWithInput(t testing.TB, input string, args ...string) string {
	t.Helper()
	out, err := r.run(t.Context(), input, args...)
	require.NoError(t, err)
	return out
}

func (r *Repository) run(ctx context.Context, input string, args ...string) (string, error) {
	git := exec.CommandContext(ctx, "git", args...)
	git.Dir = r.Dir
	git.Env = append(os.Environ(), environment...)
	git.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	git.Stderr = &stderr
	out, err := git.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// environment makes git independent of the user and the machine.
var environment = []string{
	"GIT_CONFIG_GLOBAL=" + os.DevNull,
	"GIT_CONFIG_NOSYSTEM=1",
	"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
	"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_AUTHOR_DATE=1767225600 +0000",
	"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com", "GIT_COMMITTER_DATE=1767225600 +0000",
	"GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
}

// Start is the time of commits that have none of their own.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Commit describes a commit with everything in it. Keys of the maps are paths.
type Commit struct {
	Branch      string // "" means main
	Message     string // "" means "Change policies"
	Files       map[string]string
	Executables map[string]string
	Symlinks    map[string]string // their targets
	Submodules  map[string]string // their commits
	// Orphan makes a commit without a parent, as the first one is anyway. The branch then has this commit alone, as
	// after a force-push.
	Orphan bool
	// Time is the time of author and committer. Zero means Start.
	Time time.Time
}

// Commit adds a commit to its branch and returns the hash. Files of the parent that the commit does not have are
// deleted.
func (r *Repository) Commit(t testing.TB, c Commit) string {
	t.Helper()
	hash, err := r.Add(t.Context(), c)
	require.NoError(t, err)
	return hash
}

// Add is Commit for programs that are not tests.
func (r *Repository) Add(ctx context.Context, c Commit) (string, error) {
	if c.Branch == "" {
		c.Branch = "main"
	}
	if c.Message == "" {
		c.Message = "Change policies"
	}
	if c.Time.IsZero() {
		c.Time = Start
	}
	ref := "refs/heads/" + c.Branch
	var in strings.Builder
	if c.Orphan {
		fmt.Fprintf(&in, "reset %s\n", ref)
	}
	fmt.Fprintf(&in, "commit %s\nauthor Ada <ada@example.com> %d +0000\ncommitter Ada <ada@example.com> %d +0000\n",
		ref, c.Time.Unix(), c.Time.Unix())
	writeData(&in, c.Message)
	tip, err := r.run(ctx, "", "for-each-ref", ref)
	if err != nil {
		return "", err
	}
	if !c.Orphan && tip != "" {
		fmt.Fprintf(&in, "from %s^0\n", ref)
	}
	in.WriteString("deleteall\n")
	for mode, files := range map[string]map[string]string{
		"100644": c.Files, "100755": c.Executables, "120000": c.Symlinks,
	} {
		for _, path := range slices.Sorted(maps.Keys(files)) {
			fmt.Fprintf(&in, "M %s inline %s\n", mode, path)
			writeData(&in, files[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(c.Submodules)) {
		fmt.Fprintf(&in, "M 160000 %s %s\n", c.Submodules[path], path)
	}
	in.WriteString("done\n")
	if _, err := r.run(ctx, in.String(), "fast-import", "--quiet", "--force", "--done"); err != nil {
		return "", err
	}
	return r.run(ctx, "", "rev-parse", ref)
}

func writeData(in *strings.Builder, content string) {
	fmt.Fprintf(in, "data %d\n%s\n", len(content), content)
}
