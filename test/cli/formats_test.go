//go:build linux

package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
)

// invocations are the arguments with which each command that has the flag --output is tried, with and without items.
var invocations = map[string][]string{
	"attributes":      {"-n formats-a", "-n formats-none"},
	"check":           {"", "--pre"},
	"create":          {"formats-new --dry-run=server"},
	"diff":            {"formats-a formats-b -f changed.yaml", "formats-a", "-l formats=none"},
	"exempt":          {"formats-a --template formats --reason x --dry-run=server"},
	"hydrate":         {"REPOSITORY/manifests/samples/foo-corp"},
	"opt-out":         {"formats-a --dry-run=server"},
	"preview":         {"formats-a", "formats-none", "formats-a --server"},
	"report":          {"formats-a formats-b", "-l formats=none"},
	"restore":         {"configmap/one -n formats-a --dry-run=server"},
	"rollout history": {"formats"},
	"rollout pause":   {"formats"},
	"rollout restart": {"formats"},
	"rollout resume":  {"formats"},
	"rollout undo":    {"formats --dry-run=server"},
	"scc preflight":   {""},
	"scc review":      {"-f pod.yaml -n formats-a"},
	"scc who-can-use": {"formats -n formats-a"},
	"status":          {"formats-a formats-b", "-l formats=none", "-n formats-a"},
	"sync confirm":    {"formats 1111111111111111111111111111111111111111 --dry-run=server"},
	"sync history":    {"formats"},
	"sync resume":     {"formats"},
	"sync status":     {"formats", ""},
	"sync suspend":    {"formats"},
	"top space":       {"formats", ""},
	"transfer":        {"formats-a --to bob --dry-run=server"},
	"tree":            {"", "formats"},
	"version":         {""},
	"vet":             {"-f changed.yaml", "REPOSITORY/manifests/samples/foo-corp"},
	"why":             {"formats-a", "nstpl/formats", "configmap/one -n formats-a", "-f pod.yaml -n formats-a", "held"},
}

// listedFormats matches the formats in the help of the flag --output.
var listedFormats = regexp.MustCompile(`One of: \(([^)]*)\)`)

// formatsOf returns the values of --output that the help of a command lists, with an expression or a file where they
// need one.
func formatsOf(t *testing.T, cmd *cobra.Command) []string {
	t.Helper()
	listed := listedFormats.FindStringSubmatch(cmd.Flag("output").Usage)
	require.NotNil(t, listed, cmd.CommandPath())
	expressions := map[string]string{
		"jsonpath": "{.kind}", "jsonpath-as-json": "{.kind}", "jsonpath-file": "jsonpath.txt", "go-template": "{{.kind}}",
		"go-template-file": "template.txt", "custom-columns": "A:.kind", "custom-columns-file": "columns.txt",
	}
	var formats []string
	for format := range strings.SplitSeq(listed[1], ", ") {
		name := strings.TrimSuffix(format, "=...")
		if expression, needs := expressions[name]; needs {
			name += "=" + expression
		} else if name == "template" || name == "templatefile" {
			continue // names of kubectl for go-template, which need the flag --template
		}
		formats = append(formats, name)
	}
	return formats
}

// withOutput calls do for each command that has the flag --output, with its path below kubectl nstpl.
func withOutput(cmd *cobra.Command, do func(path string, cmd *cobra.Command)) {
	for _, child := range cmd.Commands() {
		withOutput(child, do)
	}
	if _, path, found := strings.Cut(cmd.CommandPath(), "nstpl "); found && cmd.Runnable() && cmd.Flag("output") != nil {
		do(path, cmd)
	}
}

// Each command prints each format that it lists, with items and without, for an administrator and for the owner of a
// namespace. A command may say what a user may not read, but no format may be the cause of an error. On a terminal of
// 80 columns, sentences are wrapped.
func TestFormats(t *testing.T) {
	marks.Thorough(t)
	cluster := controlplane.New(t)
	install(t, cluster)
	startOperator(t, cluster)
	dir := formatsDir(t)
	kubectl(t, cluster, "apply", "-f", filepath.Join(dir, "objects.yaml"))
	kubectl(t, cluster, "wait", "--for=condition=Ready", "nstpl/formats", "--timeout=30s")
	kubectl(t, cluster, "wait", "--for=condition=policy.nstpl.dev/Populated", "ns/formats-a", "ns/formats-b", "--timeout=30s")
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	root := plugin.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &bytes.Buffer{}, ErrOut: &bytes.Buffer{}})
	withOutput(root, func(path string, cmd *cobra.Command) {
		tried := invocations[path]
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, tried, "the test tries every command with --output: add it")
			for _, arguments := range tried {
				arguments = strings.ReplaceAll(arguments, "REPOSITORY", repository)
				tryTerminal(t, cluster, dir, append(strings.Fields(path), strings.Fields(arguments)...))
				for _, format := range formatsOf(t, cmd) {
					for _, as := range [][]string{nil, {"--as", "formats-owner"}} {
						args := slices.Concat(strings.Fields(path), strings.Fields(arguments), []string{"-o", format}, as)
						tryFormat(t, cluster, dir, args, as == nil)
					}
				}
			}
		})
	})
}

// refused matches errors that say what is in the way of an answer, and not that a format failed.
var refused = regexp.MustCompile(`(?m)^(Error from server|error: no differences found, but not everything|` +
	`error: .*(you may|ask for|is paused and cannot be restarted|ask a cluster administrator|not found|is not paused|has no earlier revision|` +
	`no SecurityContextConstraints found|has no violation|does not wait|not waiting|cannot be confirmed|nothing to confirm|` +
	`is not suspended|is already|was already restarted|no namespaces wait|no namespace matches|nstpl-sync has not seen))`)

// formatsCommand returns a command of the plugin.
func formatsCommand(t *testing.T, cluster *controlplane.Cluster, dir string, args []string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(binDir, "kubectl-nstpl"), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "HOME="+dir, "TZ=Asia/Tokyo")
	return cmd
}

func tryFormat(t *testing.T, cluster *controlplane.Cluster, dir string, args []string, isAdministrator bool) {
	t.Helper()
	cmd := formatsCommand(t, cluster, dir, args)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	command := "kubectl nstpl " + strings.Join(args, " ")
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		assert.NoError(t, err, command)
		return
	}
	hasFailed := regexp.MustCompile(`(?m)^(error|Error from server)`).MatchString(errOut.String())
	if hasFailed && !refused.MatchString(errOut.String()) {
		assert.Fail(t, "the command failed", "%s\n%s", command, &errOut)
	}
	assert.NotContains(t, errOut.String(), "*unstructured", command)
	assert.NotContains(t, out.String(), "%!", command)
	assert.NotRegexp(t, `T[0-9:.]+\+09:00`, out.String(), "%s: times are in UTC, as kubectl prints them", command)
	if isAdministrator && !hasFailed && strings.Contains(command, "-o json") && !strings.Contains(command, "jsonpath") {
		assert.Contains(t, out.String(), `{`, command)
	}
}

// sequences match what moves the cursor, clears a line or sets a color.
var sequences = regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]")

// tryTerminal runs a command on a terminal with 80 columns. Each line for a person fits, unless it is one long word, or
// indented by more than two spaces, as are commands to copy.
func tryTerminal(t *testing.T, cluster *controlplane.Cluster, dir string, args []string) {
	t.Helper()
	command := "kubectl nstpl " + strings.Join(args, " ")
	cmd := formatsCommand(t, cluster, dir, args)
	ours, theirs := openTerminal(t, 80)
	var out, printed bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(&printed, ours)
		ended <- err
	}()
	cmd.Stdout, cmd.Stderr = &out, theirs
	err := cmd.Run()
	require.NoError(t, theirs.Close())
	require.ErrorIs(t, <-ended, unix.EIO) // how Linux reports that no program is left on a terminal
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		assert.NoError(t, err, command)
		return
	}
	assert.NotContains(t, out.String(), "\x1b", command)
	for line := range strings.Lines(printed.String()) {
		line = sequences.ReplaceAllString(line, "")
		line = strings.TrimRight(line, "\r\n")
		line = line[strings.LastIndex(line, "\r")+1:] // after progress
		text := strings.TrimLeft(line, " ")
		isLong := len([]rune(line)) > 80 && strings.Contains(text[:min(len(text), 79)], " ")
		assert.False(t, isLong && len(line)-len(text) <= 2, "%s\n%q", command, line)
	}
}

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T, columns uint16) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = ours.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(theirs.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	return ours, theirs
}

// formatsDir returns a folder with the files that the invocations name.
func formatsDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"jsonpath.txt": "{.kind}", "template.txt": "{{.kind}}", "columns.txt": "A\n.kind\n",
		"pod.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: a, image: a}]}}`,
		"changed.yaml": `apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: formats}
spec:
  namespaces: {labelSelector: {matchLabels: {script: formats}}}
  templates: [{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: b}}]
`,
		"objects.yaml": `apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: formats}
spec:
  namespaces: {labelSelector: {matchLabels: {script: formats}}}
  templates: [{apiVersion: v1, kind: ConfigMap, metadata: {name: one}}]
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: PolicySpace
metadata: {name: formats}
spec: {quota: {hard: {pods: "10"}}}
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: PolicyRepository
metadata: {name: formats}
spec: {suspend: true, git: {url: "https://git.example.com/x.git"}, path: x}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: nstpl-sync, namespace: nstpl-system}
spec: {holderIdentity: one_1, leaseDurationSeconds: 2000000000, renewTime: "2026-01-02T03:04:05.000000Z"}
---
{apiVersion: v1, kind: Namespace, metadata: {name: formats-a, labels: {script: formats}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: formats-b, labels: {script: formats}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: formats-none}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: owner, namespace: formats-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: formats-owner}]
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}
