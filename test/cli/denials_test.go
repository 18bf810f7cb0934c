package cli_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
)

// denied is a request that is denied: see testdata/denials/requests.yaml.
type denied struct {
	Name, Label, Given, Request, Remedy, Again string
	Explained                                  []string
	Alone                                      bool
}

// denialShell has the functions of the commands in requests.yaml. The fields of pod are those of its container, of its
// spec and of its metadata.
const denialShell = `set -eu
admin() { kubectl -n "$ns" "$@"; }
dev() { kubectl -n "$ns" --as dev "$@"; }
apply() { printf '%s\n' "$1" | kubectl -n "$ns" ${2:+--as "$2"} apply -f -; }
pod() {
	printf '%s' "{apiVersion: v1, kind: Pod, metadata: {name: p${3-}},
		spec: {containers: [{name: c, image: a${1-}}]${2-}}}" | dev create -f -
}
cpu() { echo ", resources: {requests: {cpu: $1}, limits: {cpu: $2}}"; }
claim() {
	printf '%s' "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c}, spec: {accessModes: [ReadWriteOnce],
		resources: {requests: {storage: $1}}}}" | dev create -f -
}
quota() { admin create quota own --hard="$1"; admin wait --for=jsonpath='{.status.hard}' quota/own; }
limits() { apply "{apiVersion: v1, kind: LimitRange, metadata: {name: range}, spec: {limits: [{$1}]}}"; }
namespace() {
	printf '%s' "{apiVersion: v1, kind: Namespace, metadata: {name: $1, labels: {${2%%=*}: ${2#*=}}}}" |
		kubectl --as dev create -f -
}
space() { apply "{apiVersion: policy.nstpl.dev/v1alpha1, kind: PolicySpace, metadata: {name: $1}, spec: $2}" ${3-}; }
template() {
	apply "{apiVersion: policy.nstpl.dev/v1alpha1, kind: NamespaceTemplate, metadata: {name: $1}, spec: {namespaces:
		{labelSelector: {matchLabels: {denials: none}}}, templates: [$2]}}" dev
}
grant() {
	kubectl create clusterrole "denials-$1" --verb="$1" --resource="$2"
	kubectl create clusterrolebinding "denials-$1" --clusterrole="denials-$1" --user=dev
}
printed() { printf '%s\n' "$answer" | sed -n '/| kubectl apply \|kubectl create /s/^ *//p' | sh -eu; }
quoted() { sh -euc "$(printf '%s\n' "$answer" | grep -o "'kubectl $1[^']*'" | head -1 | tr -d "'")"; }
`

// TestDenials tries requests of all kinds that are denied: why names the cause, and the remedy that it prints helps.
func TestDenials(t *testing.T) {
	marks.Thorough(t)
	data, err := os.ReadFile("testdata/denials/requests.yaml")
	require.NoError(t, err)
	var requests []denied
	require.NoError(t, yaml.UnmarshalStrict(data, &requests))
	require.Greater(t, len(requests), 50)

	cluster := controlplane.New(t)
	install(t, cluster)
	stop := startOperator(t, cluster)
	kubectl(t, cluster, "apply", "-k", "../../manifests/components/roles")
	kubectl(t, cluster, "apply", "-f", "testdata/denials/policies.yaml")
	kubectl(t, cluster, "wait", "--for=condition=Accepted", "nstpl", "--all")
	kubectl(t, cluster, "wait", "--for=condition=Enforced", "clusterprotectedattribute", "--all")
	kubectl(t, cluster, "wait", "--for=condition=Ready", "policyspace,scc,namespaceinitializationconfiguration",
		"--all")
	t.Run("together", func(t *testing.T) {
		for _, d := range requests {
			if !d.Alone {
				t.Run(d.Name, func(t *testing.T) {
					t.Parallel()
					d.try(t, cluster)
				})
			}
		}
	})
	for _, d := range requests {
		if d.Alone {
			t.Run(d.Name, func(t *testing.T) { d.try(t, cluster) })
		}
	}

	require.NoError(t, stop())
	denied{
		Name: "operator-down", Request: "pod",
		Explained: []string{
			`^the API server does not reach the operator of nstpl, so it denies the request$`,
			`State: +until the operator answers, new pods, .* are denied`, `'kubectl nstpl check' \S+ why`,
		},
		Remedy: "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration " +
			"-l app.kubernetes.io/part-of=nstpl",
	}.try(t, cluster)
}

func (d denied) try(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	environment := []string{
		"HOME=" + t.TempDir(), "KUBECONFIG=" + cluster.Kubeconfig, "ns=denials-" + d.Name, "label=" + d.Label,
		"KUBECTL_DIR=" + filepath.Dir(cluster.Kubectl), "PATH=" + binDir + ":" + os.Getenv("PATH"),
	}
	run := func(command string) (string, error) {
		shell := exec.CommandContext(t.Context(), "sh", "-c", denialShell+command)
		shell.Env = environment
		out, err := shell.CombinedOutput()
		return string(out), err
	}
	out, err := run(`label="${label:-none=}"
		printf '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "%s", "labels": {"%s": "%s"}}}' \
			"$ns" "${label%%=*}" "${label#*=}" | kubectl create -f -
		admin wait --for=create serviceaccount/default
		` + d.Given)
	require.NoError(t, err, out)
	var message string
	isDenied := func(context.Context) (bool, error) { // a rule that was just created is in force a moment later
		message, err = run(d.Request)
		return err != nil, nil
	}
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 20*time.Second, true, isDenied),
		"the request is allowed")

	environment = append(environment, "message="+message)
	const why = `printf '%s\n' "$message" | kubectl nstpl why - -n "$ns"`
	answer, err := run(why)
	require.NoError(t, err, "%s\n%s", message, answer)
	for _, line := range d.Explained {
		assert.Regexp(t, regexp.MustCompile(`(?m)`+line), answer, "the answer to\n%s", message)
	}
	out, err = run(why + " --as dev")
	require.NoError(t, err, out)

	environment = append(environment, "answer="+answer)
	out, err = run(d.Remedy)
	require.NoError(t, err, "%s\nthis is the remedy of\n%s", out, answer)
	again := d.Again
	if again == "" {
		again = d.Request
	}
	isAllowed := func(context.Context) (bool, error) {
		out, err = run(again)
		return err == nil, nil
	}
	require.NoErrorf(t, wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, time.Minute, true, isAllowed),
		"the remedy of this answer does not help:\n%s\n%s", answer, out)
}
