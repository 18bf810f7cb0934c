package helm_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/operator"
)

// installation is a cluster on which nstpl is installed by turns with Helm and with kubectl.
type installation struct {
	t       *testing.T
	cluster *controlplane.Cluster
	// manifests is the path of a file such as the install.yaml of the release.
	manifests string
	dir       string
	binary    string
}

// kubectl returns the standard output of kubectl, which must succeed.
func (i *installation) kubectl(args ...string) string {
	i.t.Helper()
	out, err := i.cluster.RunKubectl(i.t.Context(), "", args...)
	require.NoError(i.t, err)
	return out
}

func (i *installation) write(name, content string) string {
	i.t.Helper()
	path := filepath.Join(i.dir, name)
	require.NoError(i.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// helm returns the configuration of Helm's commands with --namespace nstpl-system.
func (i *installation) helm() *action.Configuration {
	i.t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	namespace := "nstpl-system"
	flags.KubeConfig, flags.Namespace = &i.cluster.Kubeconfig, &namespace
	configuration := &action.Configuration{}
	require.NoError(i.t, configuration.Init(flags, namespace, "secret", func(string, ...any) {}))
	return configuration
}

// install does the same as helm upgrade --install --take-ownership without a release.
func (i *installation) install(text string) error {
	install := action.NewInstall(i.helm())
	install.ReleaseName, install.Namespace, install.TakeOwnership = "nstpl", "nstpl-system", true
	_, err := install.RunWithContext(i.t.Context(), newChart(i.t), values(i.t, text))
	return err
}

func (i *installation) upgrade(text string) {
	i.t.Helper()
	upgrade := action.NewUpgrade(i.helm())
	upgrade.Namespace, upgrade.ResetValues = "nstpl-system", true
	_, err := upgrade.RunWithContext(i.t.Context(), "nstpl", newChart(i.t), values(i.t, text))
	require.NoError(i.t, err)
}

func (i *installation) uninstall() {
	i.t.Helper()
	_, err := action.NewUninstall(i.helm()).Run("nstpl")
	require.NoError(i.t, err)
}

// requireAsApplied requires that kubectl apply would change nothing.
func (i *installation) requireAsApplied() {
	i.t.Helper()
	i.kubectl("diff", "--filename", i.manifests)
}

func (i *installation) startOperator() *operator.Process {
	i.t.Helper()
	kubeconfig := filepath.Join(i.dir, "operator.kubeconfig")
	require.NoError(i.t, operator.WriteKubeconfig(i.t.Context(), i.cluster, kubeconfig))
	process, err := operator.Start(operator.Options{
		Binary: i.binary, Dir: i.dir, Kubeconfig: kubeconfig, Flags: []string{"--leader-elect=false"},
	})
	require.NoError(i.t, err)
	i.t.Cleanup(func() { require.NoError(i.t, process.Stop()) })
	require.NoError(i.t, process.AwaitReady(i.t.Context()))
	return process
}

func newInstallation(t *testing.T) *installation {
	t.Helper()
	i := &installation{t: t, dir: t.TempDir()}
	i.binary = filepath.Join(i.dir, "nstpl-operator")
	require.NoError(t, operator.Build(t.Context(), i.dir, "nstpl-operator"))
	var err error
	i.cluster, err = controlplane.Start(t.Context(), controlplane.Options{OneCPU: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.cluster.Stop()) })
	folder, _, err := controlplane.Manifests(controlplane.Version())
	require.NoError(t, err)
	i.manifests = i.write("install.yaml", builtText(t, "resources: ["+folder+"]\n"))
	return i
}

const template = `
apiVersion: policy.nstpl.dev/v1alpha1
kind: NamespaceTemplate
metadata: {name: settings}
spec:
  namespaces: {labelSelector: {}}
  deletionPolicy: Delete
  templates:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: settings}
    data: {stage: test}
`

// Helm installs nstpl, kubectl takes over, Helm takes over again, and nstpl is uninstalled, as docs/install.md says.
// Nothing that users or the operator wrote is lost on the way, and nothing is left in the end.
func TestHelmAndKubectlUpgradeAlternately(t *testing.T) {
	t.Parallel()
	i := newInstallation(t)
	require.ErrorContains(t, i.install(""), "first run kubectl create namespace nstpl-system")
	i.kubectl("create", "namespace", "nstpl-system")
	require.NoError(t, i.install(""))
	i.kubectl("wait", "--for=condition=Established", "crd", "--selector=app.kubernetes.io/part-of=nstpl")
	i.requireAsApplied()
	require.Equal(t, "restricted", i.kubectl("get", "namespace", "nstpl-system", "--output",
		`jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}`))

	first := i.startOperator()
	i.kubectl("apply", "--filename", i.write("template.yaml", template))
	i.kubectl("create", "namespace", "team-a")
	i.kubectl("wait", "--for=create", "configmap/settings", "--namespace=team-a", "--timeout=1m")
	i.kubectl("patch", "configmap", "nstpl-auto-opt-out", "--namespace=nstpl-system", "--type=merge", "--patch",
		`{"data": {"users": "builder"}}`)
	written := i.writtenData()
	require.Contains(t, written, "hold.policy.nstpl.dev")

	i.upgradeAndTakeOver()
	require.Equal(t, written, i.writtenData())
	require.NoError(t, first.Stop())

	// Uninstalled by Helm alone, and installed again, nstpl still has the templates and data of users.
	i.uninstall()
	i.kubectl("get", "namespacetemplate", "settings")
	i.kubectl("get", "configmap", "settings", "--namespace=team-a")
	require.Contains(t, i.kubectl("get", "configmap", "nstpl-auto-opt-out", "--namespace=nstpl-system", "--output=yaml"),
		"builder")
	require.NoError(t, i.install(""))
	i.requireAsApplied()
	i.startOperator()
	i.kubectl("create", "namespace", "team-b")
	i.kubectl("wait", "--for=create", "configmap/settings", "--namespace=team-b", "--timeout=1m")

	i.upgrade("components: {securityContextConstraints: true}")
	i.kubectl("delete", "crd", "--selector=app.kubernetes.io/part-of=nstpl", "--timeout=6m")
	i.uninstall()
	i.kubectl("delete", "namespace", "nstpl-system", "nstpl-trial", "--timeout=1m")
	require.Empty(t, i.kubectl("get", "--filename", i.manifests, "--ignore-not-found", "--output=name"))
	i.kubectl("get", "configmap", "settings", "--namespace=team-a")
}

// upgradeAndTakeOver changes the values of the release, lets kubectl take over, and then Helm.
func (i *installation) upgradeAndTakeOver() {
	i.t.Helper()
	i.upgrade("operator: {replicas: 3}\ncomponents: {securityContextConstraints: true, roles: true}")
	require.Equal(i.t, "3", i.replicas())
	require.Contains(i.t, i.kubectl("get", "securitycontextconstraints", "--output=name"), "restricted")
	i.kubectl("get", "clusterrole", "nstpl-template-author")
	i.upgrade("operator: {replicas: 3}")
	require.Empty(i.t, i.kubectl("get", "clusterrole", "nstpl-template-author", "--ignore-not-found"))
	i.requireReleases(2 + 1)

	i.kubectl("apply", "--filename", i.manifests)
	i.kubectl("annotate", "--filename", i.manifests, "meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-")
	require.NotContains(i.t, i.kubectl("get", "--filename", i.manifests, "--output=yaml"), "meta.helm.sh")
	i.kubectl("delete", "secret", "--namespace=nstpl-system", "--selector=owner=helm,name=nstpl")
	require.Equal(i.t, "2", i.replicas())
	i.requireReleases(0)
	i.requireAsApplied()
	i.kubectl("apply", "--server-side", "--force-conflicts", "--filename", i.manifests)

	require.NoError(i.t, i.install("operator: {replicas: 4}"))
	require.Equal(i.t, "4", i.replicas())
	i.upgrade("")
	i.requireAsApplied()
}

func (i *installation) replicas() string {
	i.t.Helper()
	return i.kubectl("get", "deployment", "nstpl-operator", "--namespace=nstpl-system", "--output=jsonpath={.spec.replicas}")
}

func (i *installation) requireReleases(count int) {
	i.t.Helper()
	names := i.kubectl("get", "secret", "--namespace=nstpl-system", "--selector=owner=helm,name=nstpl", "--output=name")
	require.Equal(i.t, count, strings.Count(names, "\n"))
}

// writtenData returns what the operator and administrators have written into objects of the installation.
func (i *installation) writtenData() string {
	i.t.Helper()
	get := []string{"get", "--namespace=nstpl-system", "--output=jsonpath={.data}{.webhooks[*].name}"}
	var all string
	for _, object := range []string{
		"configmap/nstpl-auto-opt-out", "configmap/nstpl-selectors", "secret/nstpl-operator-webhook",
		"validatingwebhookconfiguration/nstpl-operator",
	} {
		all += i.kubectl(append(get, object)...) + "\n"
	}
	return all
}
