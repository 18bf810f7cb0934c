package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// issueForm has the fields of GitHub's syntax for issue forms that this repository uses.
type issueForm struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Labels      []string `json:"labels"`
	Body        []struct {
		Type       string `json:"type"`
		ID         string `json:"id"`
		Attributes struct {
			Label       string   `json:"label"`
			Description string   `json:"description"`
			Value       string   `json:"value"`
			Render      string   `json:"render"`
			Options     []string `json:"options"`
		} `json:"attributes"`
		Validations struct {
			Required bool `json:"required"`
		} `json:"validations"`
	} `json:"body"`
}

// GitHub shows an issue form only if it follows these rules.
func TestIssueForms(t *testing.T) {
	t.Parallel()
	forms, err := filepath.Glob("../../.github/ISSUE_TEMPLATE/*.yml")
	require.NoError(t, err)
	forms = slices.DeleteFunc(forms, func(path string) bool { return filepath.Base(path) == "config.yml" })
	require.Len(t, forms, 2)
	for _, path := range forms {
		var form issueForm
		require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, path)), &form), path)
		require.NotEmpty(t, form.Name, path)
		require.NotEmpty(t, form.Description, path)
		ids := map[string]bool{}
		for _, field := range form.Body {
			if field.Type == "markdown" {
				require.NotEmpty(t, field.Attributes.Value, path)
				continue
			}
			require.Contains(t, []string{"textarea", "input", "dropdown"}, field.Type, path)
			require.NotEmpty(t, field.Attributes.Label, path)
			require.Regexp(t, "^[A-Za-z0-9_-]+$", field.ID, path)
			require.False(t, ids[field.ID], "%s has two fields %s", path, field.ID)
			ids[field.ID] = true
			require.Equal(t, field.Type == "dropdown", len(field.Attributes.Options) > 0, field.ID)
		}
		require.NotEmpty(t, ids, path)
	}
	bug := read(t, "../../.github/ISSUE_TEMPLATE/bug.yml")
	for _, command := range []string{"kubectl nstpl version", "kubectl nstpl check -o json"} {
		require.Contains(t, bug, "`"+command+"`")
	}
	var config struct {
		BlankIssues *bool `json:"blank_issues_enabled"`
		Links       []struct{ Name, URL, About string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(strings.Replace(read(t, "../../.github/ISSUE_TEMPLATE/config.yml"),
		"contact_links:", "links:", 1)), &config))
	require.NotNil(t, config.BlankIssues)
	require.Contains(t, config.Links[0].URL, "SECURITY.md")
	for _, link := range config.Links {
		require.NotEmpty(t, link.Name)
		require.NotEmpty(t, link.About)
		require.Regexp(t, "^https://", link.URL)
	}
}

// workflow has the fields of GitHub's syntax for workflows that the tests look at.
type workflow struct {
	On          map[string]any    `json:"true"`
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		RunsOn      string            `json:"runs-on"`
		Timeout     int               `json:"timeout-minutes"`
		Permissions map[string]string `json:"permissions"`
		Steps       []struct {
			Uses string         `json:"uses"`
			Run  string         `json:"run"`
			With map[string]any `json:"with"`
		} `json:"steps"`
	} `json:"jobs"`
}

func readWorkflow(t *testing.T, path string) workflow {
	t.Helper()
	var w workflow
	require.NoError(t, yaml.Unmarshal([]byte(read(t, path)), &w), path)
	return w
}

// Workflows may only read, except for the job that publishes a release. What they run is valid bash, and names targets
// of the Makefile.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../.github/workflows/*.yml")
	require.NoError(t, err)
	require.Len(t, paths, 3)
	makefile := read(t, "../../Makefile")
	for _, path := range paths {
		w := readWorkflow(t, path)
		require.NotContains(t, w.On, "pull_request_target", path) // it would run the code of others with our permissions
		require.Equal(t, map[string]string{"contents": "read"}, w.Permissions, path)
		for name, job := range w.Jobs {
			require.Equal(t, filepath.Base(path) == "release.yml" && name == "publish", len(job.Permissions) > 0, name)
			require.NotEmpty(t, job.RunsOn, name)
			require.Positive(t, job.Timeout, name)
			for _, step := range job.Steps {
				require.NotEqual(t, step.Uses == "", step.Run == "", name)
				out, err := exec.CommandContext(t.Context(), "bash", "-n", "-c", step.Run).CombinedOutput()
				require.NoError(t, err, "%s: %s: %s", path, name, out)
				for _, target := range regexp.MustCompile(`(?m)^make (\S+)`).FindAllStringSubmatch(step.Run, -1) {
					require.Contains(t, makefile, "\n"+target[1]+":", path)
				}
			}
		}
	}
}

// The workflow runs what .ci/run runs, with the packages that CONTRIBUTING.md lists.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	ci := readWorkflow(t, "../../.github/workflows/ci.yml")
	require.Contains(t, ci.On, "pull_request")
	require.Len(t, ci.Jobs, 1)
	job := ci.Jobs["test"]
	require.Equal(t, 90, job.Timeout)
	require.EqualValues(t, 0, job.Steps[0].With["fetch-depth"])
	require.Equal(t, "go.mod", job.Steps[1].With["go-version-file"])
	require.FileExists(t, "../../.ci/run")
	require.Regexp(t, `(?m) \.ci/run$`, job.Steps[len(job.Steps)-1].Run)

	listed := regexp.MustCompile("`apt-get install ([^`]+)`").FindStringSubmatch(read(t, "../../CONTRIBUTING.md"))
	require.NotNil(t, listed)
	installed := regexp.MustCompile(`apt-get install -y (.+)`).FindStringSubmatch(job.Steps[2].Run)
	require.NotNil(t, installed)
	// Go comes from another step, and the machines of GitHub have Chrome and npm.
	packages := slices.DeleteFunc(strings.Fields(listed[1]), func(name string) bool {
		return slices.Contains([]string{"golang", "chromium", "npm"}, name)
	})
	require.Equal(t, packages, strings.Fields(installed[1]))

	script := read(t, "../../.ci/run")
	for name := range strings.FieldsSeq(listed[1]) {
		if !slices.Contains([]string{"golang", "git", "make"}, name) { // without them, it does not run
			require.Regexp(t, `(?m)\bneed \S+ `+name+"$", script)
		}
	}
}
