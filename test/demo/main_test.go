package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/page"
)

var update = flag.Bool("update", false, "write what the commands print into the pages")

// The pages that are played on a cluster with the operator. docs/install.md is played by test/e2e, on a node.
func pages(t *testing.T, root string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	found = slices.DeleteFunc(found, func(path string) bool {
		return slices.Contains([]string{"install.md", "kinds.md", "commands.md"}, filepath.Base(path))
	})
	return append(found, filepath.Join(root, "README.md"))
}

// What the README and the manuals show is what happens.
func TestPages(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	bin := build(t, root)
	for _, path := range pages(t, root) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			playPage(t, root, bin, path)
		})
	}
}

func playPage(t *testing.T, root, bin, path string) {
	t.Helper()
	steps, err := page.Read(path)
	require.NoError(t, err)
	cluster := controlplane.New(t)
	sh := shell{dir: root, bin: bin, kubectl: cluster.Kubectl, kubeconfig: cluster.Kubeconfig}
	install, err := installation(controlplane.Version())
	require.NoError(t, err)
	require.NoError(t, sh.run(t.Context(), install, t.Output()))
	log := filepath.Join(t.TempDir(), "operator.log")
	operator, err := startOperator(t.Context(), sh, log)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, operator.Process.Kill())
		_ = operator.Wait() // it says that it was killed
	})

	var outputs []string
	for _, step := range steps {
		var out bytes.Buffer
		err := sh.run(t.Context(), step.Command, &out)
		require.NoError(t, err, "%s\nthe operator's log:\n%s", &out, read(t, log))
		outputs = append(outputs, out.String())
		if !*update {
			require.Equal(t, page.Normalize(step.Output), page.Normalize(out.String()), "$ %s", step.Command)
		}
	}
	if *update {
		rewrite(t, path, steps, outputs)
	}

	// The examples work too.
	file := filepath.Join(t.TempDir(), "example.yaml")
	for _, example := range regexp.MustCompile("(?s)```yaml\n(apiVersion.*?)```").FindAllStringSubmatch(read(t, path),
		-1) {
		require.NoError(t, os.WriteFile(file, []byte(example[1]), 0o600))
		require.NoError(t, sh.run(t.Context(), "kubectl apply -f "+file, t.Output()))
	}
	require.NoError(t,
		sh.run(t.Context(), "kubectl get namespacetemplates -o name | xargs -r kubectl wait --for=condition=Populated",
			t.Output()))
}

// No page has commands that no test plays: console blocks are.
func TestBlocks(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	all, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	for _, path := range append(all, pages(t, root)...) {
		inside := false
		for line := range strings.Lines(read(t, path)) {
			language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
			if !fence {
				continue
			}
			if inside = !inside; inside {
				require.Contains(t, []string{"console", "yaml", "text", "mermaid"}, language, "%s", path)
			}
		}
	}
}

func build(t *testing.T, root string) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/...")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

// rewrite writes what the commands printed into a page.
func rewrite(t *testing.T, path string, steps []page.Step, outputs []string) {
	t.Helper()
	content := read(t, path)
	done := 0
	for i, step := range steps {
		before, after := step.Command+"\n"+step.Output, step.Command+"\n"+outputs[i]
		at := done + strings.Index(content[done:], before)
		content = content[:at] + after + content[at+len(before):]
		done = at + len(after)
	}
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// What the manuals say of the code is so: the reason for each dependency, and the tests of the threat model.
func TestClaims(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	direct, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f",
		"{{if not (or .Indirect .Main)}}{{.Path}}{{end}}", "all").Output()
	require.NoError(t, err)
	reasons := regexp.MustCompile("`([^`]+/[^`]+)`").FindAllStringSubmatch(rows(read(t,
		filepath.Join(root, "docs", "dependencies.md"))), -1)
	var listed []string
	for _, match := range reasons {
		listed = append(listed, match[1])
	}
	require.ElementsMatch(t, strings.Fields(string(direct)), listed)

	tests := ""
	files, err := filepath.Glob(filepath.Join(root, "test", "integration", "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		tests += read(t, file)
	}
	for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(read(t,
		filepath.Join(root, "SECURITY.md")), -1) {
		require.Contains(t, tests, "func "+name[1]+"(")
	}
}

// rows are the lines of a page's tables.
func rows(markdown string) string {
	var found strings.Builder
	for line := range strings.Lines(markdown) {
		if strings.HasPrefix(line, "|") {
			found.WriteString(line)
		}
	}
	return found.String()
}
