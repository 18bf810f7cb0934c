package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/operator"
	"nstpl.dev/nstpl/test/page"
)

var update = flag.Bool("update", false, "write what the commands print into the pages")

// sessions returns the pages that are played on a cluster with the operator: those of a session are played one after
// the other on one cluster. docs/install.md is played by test/e2e, on a node.
func sessions(t *testing.T, root string) [][]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	var first []string
	for _, path := range tour {
		first = append(first, filepath.Join(root, path))
	}
	all := [][]string{first}
	for _, path := range found {
		elsewhere := slices.Contains([]string{"install.md", "kinds.md", "commands.md"}, filepath.Base(path))
		if !elsewhere && !slices.Contains(first, path) {
			all = append(all, []string{path})
		}
	}
	return all
}

// The commands in the README, and in the manuals that make demo plays with it, print what these pages show.
func TestTour(t *testing.T) {
	marks.Thorough(t) // make test runs the same commands by make demo, which does not compare what they print
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	playPages(t, root, build(t, root, "./cmd/..."), sessions(t, root)[0])
}

// The commands in the other manuals print what these show.
func TestManuals(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	bin := build(t, root, "./cmd/...")
	for _, paths := range sessions(t, root)[1:] {
		if !hasSomethingToPlay(t, paths) {
			continue
		}
		t.Run(filepath.Base(paths[0]), func(t *testing.T) {
			t.Parallel()
			playPages(t, root, bin, paths)
		})
	}
}

// hasSomethingToPlay reports whether pages have commands to run or examples to apply.
func hasSomethingToPlay(t *testing.T, paths []string) bool {
	t.Helper()
	return slices.ContainsFunc(paths, func(path string) bool {
		content := read(t, path)
		return len(page.Parse(content)) > 0 || example.MatchString(content)
	})
}

// example matches the manifests that a page shows.
var example = regexp.MustCompile("(?s)```yaml\n(apiVersion.*?)```")

func playPages(t *testing.T, root, bin string, paths []string) {
	t.Helper()
	cluster := controlplane.New(t)
	sh := shell{dir: root, bin: bin, kubectl: cluster.Kubectl, kubeconfig: cluster.Kubeconfig}
	install, err := installation(controlplane.Version())
	require.NoError(t, err)
	require.NoError(t, sh.run(t.Context(), install, t.Output()))
	log := filepath.Join(t.TempDir(), "operator.log")
	operator := &demoOperator{log: log}
	operator.start(t, sh)
	t.Cleanup(func() { operator.stop(t) })

	for _, path := range paths {
		switch filepath.Base(path) {
		case "sync.md":
			// as if Flux were installed
			require.NoError(t, sh.run(t.Context(), "kubectl create namespace flux-system", t.Output()))
			sh = withSync(t, sh)
		case "runbook.md":
			sh = withSync(t, sh)
		case "backup.md":
			sh.env = append(sh.env, "HOME="+t.TempDir()) // for the backup
		}
		playPage(t, sh, path, operator)
	}
}

// demoOperator is the operator while pages are played.
type demoOperator struct {
	process *operator.Process
	log     string
}

func (o *demoOperator) start(t *testing.T, sh shell) {
	t.Helper()
	var err error
	o.process, err = startOperator(t.Context(), sh, o.log, o.flags(t, sh)...)
	require.NoError(t, err)
}

func (o *demoOperator) stop(t *testing.T) {
	t.Helper()
	if o.process != nil {
		require.NoError(t, o.process.Stop())
		o.process = nil
	}
}

// flags returns the flags of the operator's Deployment that pages change: those about constraints. The addresses in the
// others are those of a pod.
func (o *demoOperator) flags(t *testing.T, sh shell) []string {
	t.Helper()
	var out bytes.Buffer
	get := "kubectl get deployment/nstpl-operator -n nstpl-system -o jsonpath='{.spec.template.spec.containers[0].args}'"
	require.NoError(t, sh.run(t.Context(), get, &out))
	var all []string
	require.NoError(t, yaml.Unmarshal(out.Bytes(), &all))
	return slices.DeleteFunc(all, func(flag string) bool { return !strings.HasPrefix(flag, "--scc-") })
}

// follow does after a command that scales or changes the operator's Deployment what a kubelet would do.
func (o *demoOperator) follow(t *testing.T, sh shell, command string) {
	t.Helper()
	const scale = "kubectl scale deployment/nstpl-operator -n nstpl-system --replicas="
	changes := regexp.MustCompile(`^kubectl (patch|get) deployment/nstpl-operator `)
	switch {
	case command == scale+"0":
		o.stop(t)
	case command == scale+"2":
		o.start(t, sh)
	case changes.MatchString(command):
		o.stop(t)
		o.start(t, sh)
	}
}

// withSync starts nstpl-sync and a Git server, and returns the shell with what pages need that follow a repository.
func withSync(t *testing.T, sh shell) shell {
	t.Helper()
	home := t.TempDir()
	sh = sh.withGit(home)
	sync, err := startSync(t.Context(), sh, home, filepath.Join(t.TempDir(), "sync.log"), func(proxy string) error {
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- serveGit(ctx, home, proxy) }()
		t.Cleanup(func() {
			stop()
			require.NoError(t, <-served)
		})
		return nil
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sync.Kill()) })
	return sh
}

// watchEnded matches what kubectl wait sometimes logs when it has what it waited for, and cancels its own watch.
var watchEnded = regexp.MustCompile(`(?m)^I\d{4} .*"Warning: watch ended with error".*context canceled.*\n`)

// playPage runs the commands of a page, compares what they print, and applies the page's examples.
func playPage(t *testing.T, sh shell, path string, operator *demoOperator) {
	t.Helper()
	steps, err := page.Read(path)
	require.NoError(t, err)
	var outputs []string
	for _, step := range steps {
		var out bytes.Buffer
		err := sh.run(t.Context(), step.Command, &out)
		require.NoError(t, err, "%s\nthe operator's log:\n%s", &out, read(t, operator.log))
		operator.follow(t, sh, step.Command)
		output := watchEnded.ReplaceAllString(out.String(), "")
		outputs = append(outputs, output)
		if !*update {
			require.Equal(t, page.Normalize(step.Output), page.Normalize(output), "$ %s", step.Command)
		}
	}
	if *update {
		rewrite(t, path, steps, outputs)
	}

	file := filepath.Join(t.TempDir(), "example.yaml")
	for _, match := range example.FindAllStringSubmatch(read(t, path), -1) {
		require.NoError(t, os.WriteFile(file, []byte(match[1]), 0o600))
		require.NoError(t, sh.run(t.Context(), "kubectl apply -f "+file, t.Output()))
	}
	// A disabled template is not populated.
	wait := `kubectl get namespacetemplates -o jsonpath='{range .items[*]}{.metadata.name}=` +
		`{.metadata.annotations.policy/namespace-template-apply}{"\n"}{end}' | grep -v '=disable$' | cut -d= -f1 | ` +
		`xargs -r kubectl wait --for=condition=Populated namespacetemplates`
	require.NoError(t, sh.run(t.Context(), wait, t.Output()))
}

// Every code block of a page is a console block, which TestTour or TestManuals plays, or does not contain commands to verify.
func TestBlocks(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	all, err := filepath.Glob(filepath.Join(root, "*.md"))
	require.NoError(t, err)
	for _, paths := range sessions(t, root) {
		all = append(all, paths...)
	}
	for _, path := range all {
		inside := false
		for line := range strings.Lines(read(t, path)) {
			language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
			if !fence {
				continue
			}
			language, _, _ = strings.Cut(language, " ") // a name may follow
			if inside = !inside; inside {
				require.Contains(t, []string{"console", "yaml", "text", "mermaid"}, language, "%s", path)
			}
		}
	}
}

// build builds programs into a folder, and returns its path.
func build(t *testing.T, root, programs string) string {
	t.Helper()
	bin := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin, programs)
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
	if filepath.Base(path) == "README.md" {
		picture, to := recordingOf(t, filepath.Dir(path))
		require.NoError(t, os.WriteFile(to, []byte(picture), 0o644))
	}
}

// The manuals give a reason for each direct dependency, and the threat model names tests that exist.
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
	files, err := filepath.Glob(filepath.Join(root, "test", "*", "*_test.go"))
	require.NoError(t, err)
	for _, folder := range []string{"operator/*", "operator/engine/*", "operator/internal/*", "manifests/*/*"} {
		more, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
		require.NoError(t, err)
		files = append(files, more...)
	}
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
