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
)

var update = flag.Bool("update", false, "write what the commands print into README.md")

func TestParseSteps(t *testing.T) {
	markdown := "text\n```console\n$ one\nits output\n\nmore\n$ two \\\n  three\n```\n$ not a command\n```sh\n$ nor this\n```\n```console\n$ four\n```\n"
	require.Equal(t, []step{
		{command: "one", output: "its output\n\nmore\n"},
		{command: "two \\\n  three"},
		{command: "four"},
	}, parseSteps(markdown))
}

// What the README shows is what happens.
func TestREADME(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	readme := filepath.Join(root, "README.md")
	cluster := controlplane.New(t)
	sh := shell{dir: root, bin: build(t, root), kubectl: cluster.Kubectl, kubeconfig: cluster.Kubeconfig}
	steps, err := readSteps(readme)
	require.NoError(t, err)
	require.NotEmpty(t, steps)

	for _, version := range []string{controlplane.DefaultVersion, "1.35.4"} {
		install, err := installation(version)
		require.NoError(t, err)
		require.Contains(t, read(t, readme), "\n"+install+"\n")
	}
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
		err := sh.run(t.Context(), step.command, &out)
		require.NoError(t, err, "%s\nthe operator's log:\n%s", &out, read(t, log))
		outputs = append(outputs, out.String())
		if !*update {
			require.Equal(t, normalize(step.output), normalize(out.String()), "$ %s", step.command)
		}
	}
	if *update {
		rewrite(t, readme, steps, outputs)
	}

	// The examples work too.
	file := filepath.Join(t.TempDir(), "example.yaml")
	for _, example := range regexp.MustCompile("(?s)```yaml\n(apiVersion.*?)```").FindAllStringSubmatch(read(t, readme), -1) {
		require.NoError(t, os.WriteFile(file, []byte(example[1]), 0o600))
		require.NoError(t, sh.run(t.Context(), "kubectl apply -f "+file, t.Output()))
	}
	require.NoError(t, sh.run(t.Context(), "kubectl wait --for=condition=Populated namespacetemplates --all", t.Output()))
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

// rewrite writes what the commands printed into the README.
func rewrite(t *testing.T, readme string, steps []step, outputs []string) {
	t.Helper()
	content := read(t, readme)
	done := 0
	for i, step := range steps {
		before, after := step.command+"\n"+step.output, step.command+"\n"+outputs[i]
		at := done + strings.Index(content[done:], before)
		content = content[:at] + after + content[at+len(before):]
		done = at + len(after)
	}
	require.NoError(t, os.WriteFile(readme, []byte(content), 0o644))
}

var (
	durations = regexp.MustCompile(`\b(\d+(\.\d+)?(µs|ms|s|m))+\b`)
	spaces    = regexp.MustCompile(` {2,}`)
)

// normalize takes out what differs from run to run: how long things took, which makes columns wider, and the order in
// which objects arrive.
func normalize(output string) string {
	output = spaces.ReplaceAllString(durations.ReplaceAllString(output, "<duration>"), " ")
	lines := strings.Split(strings.TrimSpace(output), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
