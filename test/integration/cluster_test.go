package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/operator"
	"nstpl.dev/nstpl/test/process"
)

// testCluster is a control plane with the project's manifests, and at most one operator.
type testCluster struct {
	controlPlane *controlplane.Cluster
	// client is the administrator's.
	client client.Client
	audit  *audit.Log
	// dir holds what isn't the control plane's: the operator's kubeconfig, logs.
	dir string
	// operatorKubeconfig names the operator's ServiceAccount as the user.
	operatorKubeconfig string
	operator           *operator.Process
	// webhookAddress is where each operator of the world serves, so that a restart changes nothing.
	webhookAddress string
	// behindService says that a service is asked there, and operators serve elsewhere.
	behindService bool
	// olderTaken counts the older namespaces in use.
	preexistingUsed atomic.Int32
}

// additionalKindsRole lets the operator populate what it may not by default, as an administrator would.
const additionalKindsRole = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: integration-more-kinds
  labels:
    policy.nstpl.dev/aggregate-to-operator: "true"
rules:
- apiGroups: [""]
  resources: [secrets, persistentvolumeclaims]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [example.com]
  resources: ["*"]
  verbs: [list, watch, create, patch, delete]
`

// startTestCluster starts a control plane whose API server has additional arguments.
func startTestCluster(ctx context.Context, apiServerArgs ...string) (cluster *testCluster, err error) {
	cluster = &testCluster{}
	if cluster.dir, err = os.MkdirTemp("", "nstpl-world-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cluster.stop())
		}
	}()
	policy := filepath.Join(cluster.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(audit.Policy), 0o600); err != nil {
		return nil, err
	}
	addresses, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	cluster.webhookAddress = addresses[0]
	cluster.audit = &audit.Log{Path: filepath.Join(cluster.dir, "audit.log")}
	cluster.controlPlane, err = controlplane.Start(ctx, controlplane.Options{APIServerArgs: append([]string{
		"--audit-policy-file=" + policy, "--audit-log-path=" + cluster.audit.Path, "--audit-log-mode=blocking",
		"--audit-log-maxsize=100000",
	}, apiServerArgs...)})
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	if cluster.client, err = client.New(cluster.controlPlane.RESTConfig(), client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	return cluster, cluster.install(ctx)
}

// newTestCluster gives a test a world of its own, with an operator.
func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	cluster, err := startTestCluster(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.stop()) })
	require.NoError(t, cluster.startOperator(t.Context()))
	return cluster
}

// preexistingNamespaces are there before the manifests are.
const preexistingNamespaces = 24

func preexistingName(number int) string { return fmt.Sprintf("older-%02d", number) }

// install applies the manifests as the README says, and gives the operator a token.
func (cluster *testCluster) install(ctx context.Context) error {
	for i := range preexistingNamespaces {
		if err := cluster.client.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: preexistingName(i)}}); err != nil {
			return err
		}
	}
	folder, _, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return err
	}
	if _, err := cluster.kubectl(ctx, "", "apply", "--kustomize", filepath.Join("../..", folder)); err != nil {
		return err
	}
	if _, err := cluster.kubectl(ctx, additionalKindsRole, "apply", "--filename", "-"); err != nil {
		return err
	}
	if _, err := cluster.kubectl(ctx, "", "wait", "--for=condition=Established", "crd",
		"namespacetemplates.policy.nstpl.dev"); err != nil {
		return err
	}
	if err := cluster.waitAggregatedRules(ctx); err != nil {
		return err
	}
	if err := cluster.waitAdmissionPolicies(ctx); err != nil {
		return err
	}
	cluster.operatorKubeconfig = filepath.Join(cluster.dir, "operator.kubeconfig")
	return operator.WriteKubeconfig(ctx, cluster.controlPlane, cluster.operatorKubeconfig)
}

// waitAdmissionPolicies returns when the API server goes by the admission policies, which stamp or refuse a forged creator. Until it
// has their parameters, it refuses all namespaces.
func (cluster *testCluster) waitAdmissionPolicies(ctx context.Context) error {
	return cluster.waitDryRunNamespace(ctx, func(probe *corev1.Namespace, err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), v1alpha1.CreatorAnnotation) || err == nil &&
			hasStampedCreator(probe)
	})
}

func hasStampedCreator(probe *corev1.Namespace) bool {
	return probe.Annotations[v1alpha1.CreatorAnnotation] != "nobody"
}

// waitDryRunNamespace has a namespace with a forged creator created, by a dry run, until what becomes of it is as expected.
func (cluster *testCluster) waitDryRunNamespace(ctx context.Context, expected func(*corev1.Namespace, error) bool) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "probe", Annotations: map[string]string{v1alpha1.CreatorAnnotation: "nobody"},
			}}
			err := cluster.client.Create(ctx, probe, client.DryRunAll)
			return expected(probe, err), nil
		})
}

// waitAggregatedRules returns when the rules of the operator's ClusterRole are the sum of the others'.
func (cluster *testCluster) waitAggregatedRules(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			parts, sum := &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRole{}
			if err := cluster.client.List(ctx, parts, client.MatchingLabels{v1alpha1.AggregateLabel: "true"}); err != nil {
				return false, err
			}
			if err := cluster.client.Get(ctx, client.ObjectKey{Name: "nstpl-operator-populate"}, sum); err != nil {
				return false, err
			}
			rules := 0
			for _, part := range parts.Items {
				rules += len(part.Rules)
			}
			return len(sum.Rules) == rules, nil
		})
}

// startOperator starts an operator and returns when it is ready, and creators are stamped.
func (cluster *testCluster) startOperator(ctx context.Context, flags ...string) error {
	next, err := startReplica(ctx, cluster, append([]string{"--leader-elect=false"}, flags...)...)
	if err != nil {
		return err
	}
	cluster.operator = next
	return cluster.waitDryRunNamespace(ctx, func(probe *corev1.Namespace, err error) bool { return err == nil && hasStampedCreator(probe) })
}

// restartOperator kills the operator as a crash would, and starts another.
func (cluster *testCluster) restartOperator(t *testing.T) {
	t.Helper()
	require.NoError(t, cluster.operator.Kill())
	require.NoError(t, cluster.startOperator(t.Context()))
}

// stop stops everything. It fails if something was deleted that the operator had not created, and if the operator says
// that it did what it must not.
func (cluster *testCluster) stop() error {
	var errs []error
	if cluster.operator != nil {
		errs = append(errs, cluster.operator.Stop())
	}
	if cluster.controlPlane != nil {
		errs = append(errs, cluster.audit.CheckDeletions(mayBeDeleted), cluster.controlPlane.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(cluster.dir))...)
}

// kubectl runs the cluster's own kubectl as its administrator.
func (cluster *testCluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, cluster.controlPlane.Kubectl,
		append([]string{"--kubeconfig", cluster.controlPlane.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}
