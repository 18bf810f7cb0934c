package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/test/marks"
)

// github has the fields of a workflow of GitHub Actions that docs/vet.md uses.
type github struct {
	Name string `json:"name"`
	// On has the key "true", since YAML 1.1 reads "on" as a boolean.
	On          []string          `json:"true"`
	Permissions map[string]string `json:"permissions"`
	Env         map[string]string `json:"env"`
	Jobs        map[string]struct {
		RunsOn string `json:"runs-on"`
		Steps  []struct {
			Name string            `json:"name"`
			Uses string            `json:"uses"`
			Run  string            `json:"run"`
			If   string            `json:"if"`
			With map[string]string `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

// gitlab has the fields of a pipeline of GitLab CI that docs/vet.md uses.
type gitlab map[string]struct {
	Image        string            `json:"image"`
	Variables    map[string]string `json:"variables"`
	BeforeScript []string          `json:"before_script"`
	Script       []string          `json:"script"`
}

// preCommitConfig has the fields of .pre-commit-config.yaml that docs/vet.md uses.
type preCommitConfig struct {
	Repos []struct {
		Repo  string `json:"repo"`
		Rev   string `json:"rev"`
		Hooks []struct {
			ID   string   `json:"id"`
			Args []string `json:"args"`
		} `json:"hooks"`
	} `json:"repos"`
}

// preCommitHook has the fields of .pre-commit-hooks.yaml that this repository uses, as
// https://pre-commit.com/#new-hooks documents them.
type preCommitHook struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	Description   string `json:"description"`
	Entry         string `json:"entry"`
	Language      string `json:"language"`
	AlwaysRun     bool   `json:"always_run"`
	PassFilenames *bool  `json:"pass_filenames"`
}

// yamlBlock returns the YAML block of a page that begins with a comment.
func yamlBlock(t *testing.T, path, comment string) string {
	t.Helper()
	match := regexp.MustCompile("(?s)```yaml\n# " + regexp.QuoteMeta(comment) + "\n(.*?)```").FindStringSubmatch(
		read(t, path))
	require.NotNil(t, match, "%s has no block %s", path, comment)
	return match[1]
}

// workspace is a checkout of a repository with policies, in which pipelines and hooks run.
type workspace struct {
	dir, home string
	env       []string
}

// newWorkspace returns a checkout with the sample tree and the files that hydrate writes for Argo CD.
func newWorkspace(t *testing.T, root string) *workspace {
	t.Helper()
	w := &workspace{dir: t.TempDir(), home: t.TempDir()}
	// In a container of GitLab, apt-get installs curl, which is here already.
	require.NoError(t, os.WriteFile(filepath.Join(w.home, "apt-get"), []byte("#!/bin/sh\n"), 0o755))
	sample := filepath.Join(root, "manifests", "samples", "foo-corp")
	require.NoError(t, os.CopyFS(filepath.Join(w.dir, "foo-corp"), os.DirFS(sample)))
	committed := filepath.Join(root, "manifests", "gitops", "argocd")
	require.NoError(t, os.CopyFS(filepath.Join(w.dir, "argocd"), os.DirFS(committed)))
	return w
}

// edit replaces a text in a file of the workspace.
func (w *workspace) edit(t *testing.T, path, old, text string) {
	t.Helper()
	path = filepath.Join(w.dir, path)
	content := read(t, path)
	require.Contains(t, content, old)
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(content, old, text)), 0o600))
}

// run runs a script as a pipeline does, and finds commands in path first.
func (w *workspace) run(t *testing.T, path, script string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", script)
	cmd.Dir = w.dir
	cmd.Env = append(append(os.Environ(), "HOME="+w.home, "PATH="+path+":"+w.home+":"+os.Getenv("PATH")), w.env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", script, out)
	return err
}

// archive is an archive of a plugin, as in a release.
type archive struct{ path, sum string }

func newArchive(t *testing.T, bin string) archive {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nstpl.tar.gz")
	out, err := exec.CommandContext(t.Context(), "tar", "-czf", path, "-C", bin, "kubectl-nstpl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	sum := sha256.Sum256([]byte(read(t, path)))
	return archive{path, hex.EncodeToString(sum[:])}
}

// offer has a pipeline with some variables download an archive.
func (w *workspace) offer(t *testing.T, plugin archive, variables map[string]string) {
	t.Helper()
	require.Contains(t, variables, "PLUGIN")
	require.Len(t, variables["SHA256"], len(plugin.sum))
	w.env = append(w.env, "PLUGIN=file://"+plugin.path, "SHA256="+plugin.sum)
}

// mistakes are changes of a workspace that a pipeline must reject, and the one that it must accept.
var mistakes = map[string]struct {
	make func(t *testing.T, w *workspace)
	ok   bool
}{
	"no mistake": {func(*testing.T, *workspace) {}, true},
	"a violation": {func(t *testing.T, w *workspace) {
		t.Helper()
		w.edit(t, "foo-corp/audit/namespace.yaml", "name: audit", "name: audits")
	}, false},
	"a stale file": {func(t *testing.T, w *workspace) {
		t.Helper()
		w.edit(t, "argocd/foo-corp.yaml", "pods: \"3\"", "pods: \"4\"")
	}, false},
	"another archive": {func(_ *testing.T, w *workspace) {
		w.env = append(w.env, "SHA256="+strings.Repeat("0", 64))
	}, false},
}

// The pipelines in docs/vet.md accept a valid tree, and reject a violation, a file that hydrate would change, and a
// plugin with another hash.
func TestPipelines(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	plugin := newArchive(t, build(t, root, "./cmd/kubectl-nstpl"))
	manual := filepath.Join(root, "docs", "vet.md")
	var workflow github
	require.NoError(t, yaml.UnmarshalStrict([]byte(yamlBlock(t, manual, ".github/workflows/policies.yaml")), &workflow))
	var pipeline gitlab
	require.NoError(t, yaml.UnmarshalStrict([]byte(yamlBlock(t, manual, ".gitlab-ci.yml")), &pipeline))

	for name, mistake := range mistakes {
		expect := func(t *testing.T, err error) {
			t.Helper()
			if mistake.ok {
				require.NoError(t, err)
			} else {
				require.Error(t, err)
			}
		}
		t.Run("GitHub Actions/"+name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, root)
			w.offer(t, plugin, workflow.Env)
			mistake.make(t, w)
			expect(t, w.runGitHub(t, workflow))
		})
		t.Run("GitLab CI/"+name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, root)
			job := pipeline["vet"]
			w.offer(t, plugin, job.Variables)
			mistake.make(t, w)
			expect(t, w.run(t, "", strings.Join(append(job.BeforeScript, job.Script...), "\n")))
		})
	}
}

// runGitHub runs the steps of a workflow until one fails. What a step adds to GITHUB_PATH is in the path of the next.
func (w *workspace) runGitHub(t *testing.T, workflow github) error {
	t.Helper()
	paths := filepath.Join(w.home, "paths")
	w.env = append(w.env, "GITHUB_PATH="+paths)
	for _, step := range workflow.Jobs["vet"].Steps {
		if step.Run == "" {
			require.NotEmpty(t, step.Uses)
			continue
		}
		added, _ := os.ReadFile(paths) // the first steps have none
		if err := w.run(t, strings.TrimSpace(string(added)), step.Run); err != nil {
			return err
		}
	}
	require.Contains(t, read(t, filepath.Join(w.dir, "violations.sarif")), `"version": "2.1.0"`)
	return nil
}

// The hooks run as pre-commit runs them: the entry with the arguments of the configuration and without file names. A
// hook fails if it exits with an error, or if it changes files.
func TestPreCommitHooks(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	bin := build(t, root, "./cmd/kubectl-nstpl")
	var hooks []preCommitHook
	require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, filepath.Join(root, ".pre-commit-hooks.yaml"))), &hooks))
	var config preCommitConfig
	require.NoError(t, yaml.UnmarshalStrict([]byte(
		yamlBlock(t, filepath.Join(root, "docs", "vet.md"), ".pre-commit-config.yaml")), &config))
	entries := map[string]string{}
	for _, hook := range hooks {
		require.NotEmpty(t, hook.Name)
		require.NotEmpty(t, hook.Description)
		require.True(t, hook.AlwaysRun)
		require.False(t, *hook.PassFilenames)
		// For this language, pre-commit runs "go install ./..." in the repository.
		require.Equal(t, "golang", hook.Language)
		require.FileExists(t, filepath.Join(root, "cmd", strings.Fields(hook.Entry)[0], "main.go"))
		entries[hook.ID] = hook.Entry
	}
	require.Len(t, config.Repos, 1)
	require.Len(t, config.Repos[0].Hooks, len(entries))

	for name, mistake := range mistakes {
		if name == "another archive" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkspace(t, root)
			require.NoError(t, w.run(t, bin, "git init -q && git add ."))
			mistake.make(t, w)
			require.NoError(t, w.run(t, bin, "git add ."))
			passed := true
			for _, hook := range config.Repos[0].Hooks {
				require.Contains(t, entries, hook.ID)
				command := entries[hook.ID] + " " + strings.Join(hook.Args, " ")
				passed = passed && w.run(t, bin, command+" && git diff --exit-code") == nil
			}
			require.Equal(t, mistake.ok, passed)
		})
	}
}
