package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"nstpl.dev/nstpl/test/node"
	"nstpl.dev/nstpl/test/page"
)

// The versions that are installed first, and that it is upgraded to.
const (
	first  = "v0.1.0"
	second = "v0.1.1"
)

const imageName = "nstpl.dev/nstpl-operator"

// site is a cluster and the releases to install on it.
type site struct {
	t       *testing.T
	cluster *node.Cluster
	// root is the repository, in which commands run, and dir is the folder of the releases.
	root, dir string
}

func newSite(t *testing.T) *site {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	s := &site{t: t, root: root, dir: t.TempDir()}
	s.release(first, s.earlier())
	s.release(second, root)
	s.cluster, err = node.Start(t.Context(), t.Output())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(s.bin(), 0o755))
	require.NoError(t, os.Symlink(s.cluster.Kubectl, filepath.Join(s.bin(), "kubectl")))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.cluster.Logs())
		}
		require.NoError(t, s.cluster.Stop())
	})
	return s
}

// in returns the site for a step.
func (s *site) in(t *testing.T) *site {
	t.Helper()
	step := *s
	step.t = t
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			for _, args := range []string{
				"get pods -A -o wide", "describe pods -n nstpl-system",
				"logs -n nstpl-system -l app.kubernetes.io/name=nstpl-operator --prefix --tail=40",
				"logs -n nstpl-system -l app.kubernetes.io/name=nstpl-sync --tail=40", "get policyrepositories -o yaml",
			} {
				out, _ := s.command(ctx, strings.Fields(args)...).CombinedOutput()
				t.Logf("kubectl %s\n%s", args, out)
			}
		}
	})
	return &step
}

// earlier returns a copy of the repository at the commit $UPGRADE_FROM, or at its current state.
func (s *site) earlier() string {
	s.t.Helper()
	from := os.Getenv("UPGRADE_FROM")
	if from == "" {
		return s.root
	}
	root := filepath.Join(s.dir, "earlier")
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-C", s.root, "worktree"}, args...)...)
		output, err := cmd.CombinedOutput()
		require.NoError(s.t, err, "%s", output)
	}
	git("add", "--detach", root, from)
	s.t.Cleanup(func() { git("remove", "--force", root) })
	return root
}

// release builds the release of a version, for this machine.
func (s *site) release(version, root string) {
	s.t.Helper()
	out := filepath.Join(s.dir, version)
	cmd := exec.CommandContext(s.t.Context(), "go", "run", "./krew/release", "-version="+version,
		"-platforms=linux/"+runtime.GOARCH,
		"-image="+imageName, "-out="+out, "-manifest="+filepath.Join(out, "nstpl.yaml"))
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	output, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s", output)
}

func (s *site) file(version, name string) string { return filepath.Join(s.dir, version, name) }

// play runs the commands of a section of docs/install.md, with dist replaced by a version's folder, and compares their
// output.
func (s *site) play(section, version string) {
	s.t.Helper()
	steps, err := page.Read(filepath.Join(s.root, "docs", "install.md"))
	require.NoError(s.t, err)
	here := s.t.TempDir()
	require.NoError(s.t, os.Symlink(filepath.Join(s.dir, version), filepath.Join(here, "dist")))
	require.NoError(s.t, os.Symlink(s.bin(), filepath.Join(here, "bin")))
	played := 0
	for _, step := range steps {
		if step.Section != section {
			continue
		}
		played++
		command := strings.ReplaceAll(step.Command, "linux-amd64", "linux-"+runtime.GOARCH)
		cmd := exec.CommandContext(s.t.Context(), "sh", "-c", command)
		cmd.Dir, cmd.Env = here, s.environment()
		out, err := cmd.CombinedOutput()
		require.NoError(s.t, err, "$ %s\n%s", step.Command, out)
		require.Equal(s.t, page.Normalize(step.Output), page.Normalize(string(out)), "$ %s", step.Command)
	}
	require.NotZero(s.t, played)
}

// bin is the folder of the programs that users call.
func (s *site) bin() string { return filepath.Join(s.dir, "bin") }

func (s *site) environment() []string {
	return append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig, "PATH="+s.bin()+":"+os.Getenv("PATH"))
}

// load loads the operator's image into the node.
func (s *site) load(version string) {
	s.t.Helper()
	require.NoError(s.t,
		s.cluster.LoadImage(s.t.Context(), imageName, s.file(version, "nstpl-operator-"+version+"-oci.tar")))
}

// awaitOperator waits until only one version of the operator runs, and new namespaces get their creators.
func (s *site) awaitOperator(version string) {
	s.t.Helper()
	s.kubectl("rollout", "status", "deployment/nstpl-operator", "-n", "nstpl-system", "--timeout=2m")
	s.eventually(func() error { return contains(s.kubectl("nstpl", "version"), version) })
	s.eventually(func() error {
		out, err := s.try("create", "namespace", "probe", "--dry-run=server", "-o", "yaml")
		if err != nil {
			return err
		}
		return contains(out, "authorization.k8s.io/creator: admin")
	})
}

// populated returns all objects with the label of a template, with their resourceVersions.
func (s *site) populated() string {
	s.t.Helper()
	return s.kubectl("get", "networkpolicies,limitranges,roles,rolebindings", "-A", "-l",
		"policy/namespace-template-name",
		"-o", `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.uid} {.metadata.resourceVersion}{"\n"}{end}`)
}

func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.cluster.Kubectl, args...)
	cmd.Dir = s.root
	cmd.Env = s.environment()
	return cmd
}

// try runs kubectl, with the plugin.
func (s *site) try(args ...string) (string, error) {
	cmd := s.command(s.t.Context(), args...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return out.String(), nil
}

func (s *site) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	require.NoError(s.t, err)
	return out
}

// eventually calls a function until it returns no error.
func (s *site) eventually(question func() error) {
	s.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(s.t.Context(), 100*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) {
			last = question()
			return last == nil, nil
		})
	require.NoError(s.t, err, "%v", last)
}

func equal(want, got string) error {
	if want != got {
		return fmt.Errorf("it is %q and should be %q", got, want)
	}
	return nil
}

func contains(text, want string) error {
	if !strings.Contains(text, want) {
		return fmt.Errorf("%q is not in %q", want, text)
	}
	return nil
}

// refused returns nil if an error is a denial that contains a text.
func refused(err error, saying string) error {
	if err == nil {
		return fmt.Errorf("it was not refused")
	}
	if !strings.Contains(err.Error(), "denied the request") {
		return err
	}
	return contains(err.Error(), saying)
}
