package operator_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/operator"
)

// installed is a cluster in which one version of nstpl after another is installed.
type installed struct {
	t       *testing.T
	cluster *controlplane.Cluster
	running *operator.Process
}

// TestGoBack installs this version, goes back to an earlier commit, and forward again: docs/versions.md says what
// happens then. $GO_BACK_TO selects the commit. Without it, that is the one before the last.
func TestGoBack(t *testing.T) {
	marks.Thorough(t)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	commit := os.Getenv("GO_BACK_TO")
	if commit == "" {
		commit = "HEAD~1"
	}
	earlier := filepath.Join(t.TempDir(), "earlier")
	run(t, root, "git", "worktree", "add", "--detach", earlier, commit)
	t.Cleanup(func() {
		out, err := exec.Command("git", "-C", root, "worktree", "remove", "--force", earlier).CombinedOutput()
		require.NoError(t, err, "%s", out)
	})

	s := &installed{t: t, cluster: controlplane.New(t)}
	t.Cleanup(s.stop)
	s.install(root)
	for _, sample := range []string{"security-defaults", "creator-admin", "policyspaces", "own-id"} {
		s.kubectl("apply", "-f", filepath.Join(root, "manifests", "samples", sample+".yaml"))
	}
	s.kubectl("wait", "--for=condition=Ready", "policyspace", "--all")
	s.populate("before")
	populated := s.resourceVersions("before")

	s.install(earlier)
	s.populate("earlier")
	s.works("earlier")
	s.works("before")
	s.install(root)
	s.populate("again")
	s.works("again")
	s.works("earlier")
	for object, version := range s.resourceVersions("before") {
		if !strings.HasPrefix(object, "networkpolicy") { // which works deletes
			require.Equal(t, populated[object], version, "%s was written", object)
		}
	}
}

// install applies the manifests of a version in a folder, and replaces the running operator by that version's.
func (s *installed) install(folder string) {
	s.t.Helper()
	s.stop()
	manifests, _, err := controlplane.Manifests(controlplane.Version())
	require.NoError(s.t, err)
	s.kubectl("apply", "--server-side", "--force-conflicts", "-k", filepath.Join(folder, manifests))
	s.kubectl("wait", "--for=condition=Established", "crd", "--all")
	dir := s.t.TempDir()
	binary := filepath.Join(dir, "nstpl-operator")
	run(s.t, folder, "go", "build", "-o", binary, "./cmd/nstpl-operator")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	require.NoError(s.t, operator.WriteKubeconfig(s.t.Context(), s.cluster, kubeconfig))
	s.running, err = operator.Start(operator.Options{
		Binary: binary, Dir: dir, Kubeconfig: kubeconfig, Flags: []string{"--leader-elect"},
	})
	require.NoError(s.t, err)
	require.NoError(s.t, s.running.AwaitReady(s.t.Context()), s.running.Log(""))
}

func (s *installed) stop() {
	s.t.Helper()
	if s.running != nil {
		require.NoError(s.t, s.running.Stop())
		s.running = nil
	}
}

// populate creates a namespace of the policy space payments, and awaits its objects.
func (s *installed) populate(namespace string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "namespace.yaml")
	require.NoError(s.t, os.WriteFile(file, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+
		", labels: {policy.nstpl.dev/policyspace: payments}}}"), 0o600))
	s.kubectl("create", "-f", file)
	s.kubectl("wait", "--for=condition=policy.nstpl.dev/Populated", "namespace/"+namespace, "--timeout=1m")
	s.kubectl("get", "rolebinding/company.auditors", "networkpolicy/payments.among-us", "limitrange/defaults",
		"-n", namespace)
}

// works requires that the operator corrects and limits a namespace.
func (s *installed) works(namespace string) {
	s.t.Helper()
	s.kubectl("delete", "networkpolicy", "allow-dns", "-n", namespace)
	s.kubectl("wait", "--for=create", "networkpolicy/allow-dns", "-n", namespace, "--timeout=1m")
	s.kubectl("patch", "policyspace", "payments", "--type=merge", "-p", `{"spec":{"quota":{"hard":{"pods":"0"}}}}`)
	require.Eventually(s.t, func() bool {
		out, err := s.try("run", "p", "--image=a", "--dry-run=server", "-n", namespace)
		return err != nil && strings.Contains(out, "(nstpl:quota-exceeded)")
	}, 30*time.Second, 100*time.Millisecond)
	s.kubectl("patch", "policyspace", "payments", "--type=merge", "-p", `{"spec":{"quota":{"hard":{"pods":"100"}}}}`)
	s.kubectl("wait", "--for=condition=policy.nstpl.dev/Populated", "namespace/"+namespace)
}

// resourceVersions returns the resourceVersion of each populated object of a namespace.
func (s *installed) resourceVersions(namespace string) map[string]string {
	s.t.Helper()
	out := s.kubectl("get", "limitrange,networkpolicy,rolebinding,role", "-n", namespace,
		"-l", "policy/namespace-template-name", "-o",
		`jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion}{"\n"}{end}`)
	versions := map[string]string{}
	for line := range strings.Lines(out) {
		object, version, _ := strings.Cut(strings.TrimSpace(line), "=")
		versions[strings.ToLower(object)] = version
	}
	require.NotEmpty(s.t, versions)
	return versions
}

func (s *installed) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	require.NoError(s.t, err, "kubectl %s: %s", strings.Join(args, " "), out)
	return out
}

func (s *installed) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.cluster.Kubectl,
		append([]string{"--kubeconfig", s.cluster.Kubeconfig}, args...)...).CombinedOutput()
	return string(out), err
}

func run(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", program, strings.Join(args, " "), out)
}
