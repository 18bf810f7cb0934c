package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/operator"
	"nstpl.dev/nstpl/test/process"
)

// testCluster is a control plane with the project's manifests, and an operator that the tests start and stop.
type testCluster struct {
	controlPlane *controlplane.Cluster
	// client has the permissions of an administrator.
	client client.Client
	audit  *audit.Log
	// dir is a folder for the operator's kubeconfig and logs.
	dir string
	// operatorKubeconfig names the operator's ServiceAccount as the user.
	operatorKubeconfig string
	operator           *operator.Process
	// replicas are all operators that were started, and defaultOperator the last one without further flags.
	replicas        []*operator.Process
	defaultOperator *operator.Process
	// pristine is the snapshot of a cluster that tests borrow, and kinds are those of its objects.
	pristine snapshot
	kinds    []schema.GroupVersionKind
	// webhookAddress is the address at which all operators of the cluster serve webhooks, one after the other.
	webhookAddress string
	// behindService means that a service listens at webhookAddress, and that operators serve at other addresses.
	behindService bool
	// olderTaken counts the older namespaces in use.
	preexistingUsed atomic.Int32
}

// additionalKindsRole lets the operator populate kinds for which it has no permissions by default.
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
  resources: [jobs, cronjobs]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [example.com]
  resources: ["*"]
  verbs: [list, watch, create, patch, delete]
`

// startTestCluster starts a control plane and installs nstpl on it, without an operator. The arguments of the API
// server are added to those that the tests need.
func startTestCluster(ctx context.Context, apiServerArgs ...string) (_ *testCluster, err error) {
	cluster := &testCluster{}
	if cluster.dir, err = os.MkdirTemp("", "nstpl-cluster-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, cluster.stop())
		}
	}()
	log, flags, err := audit.NewLog(cluster.dir)
	if err != nil {
		return nil, err
	}
	addresses, err := process.FreeAddresses(1)
	if err != nil {
		return nil, err
	}
	cluster.audit, cluster.webhookAddress = log, addresses[0]
	cluster.controlPlane, err = controlplane.Start(ctx,
		controlplane.Options{APIServerArgs: append(flags, apiServerArgs...)})
	if err != nil {
		return nil, err
	}
	if cluster.client, err = operator.NewClient(cluster.controlPlane.RESTConfig()); err != nil {
		return nil, err
	}
	return cluster, cluster.install(ctx)
}

// newClusterWithoutOperator starts a cluster for one test.
func newClusterWithoutOperator(t *testing.T, apiServerArgs ...string) *testCluster {
	t.Helper()
	cluster, err := startTestCluster(t.Context(), apiServerArgs...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.stop()) })
	return cluster
}

// newTestCluster starts a cluster with an operator for one test.
func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	cluster := newClusterWithoutOperator(t)
	require.NoError(t, cluster.startOperator(t.Context()))
	require.NoError(t, cluster.checkVetting(t.Context()))
	return cluster
}

// preexistingNamespaces is the number of namespaces that are created before nstpl is installed.
const preexistingNamespaces = 24

func preexistingName(number int) string { return fmt.Sprintf("older-%02d", number) }

// install applies the manifests, and gives the operator a token.
func (cluster *testCluster) install(ctx context.Context) error {
	for i := range preexistingNamespaces {
		if err := cluster.client.Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: preexistingName(i)}}); err != nil {
			return err
		}
	}
	objects, err := installed()
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := cluster.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()),
			client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if err := cluster.waitServed(ctx); err != nil {
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

// applyManifests applies the manifests as the README says.
func (cluster *testCluster) applyManifests(ctx context.Context) error {
	folder, _, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return err
	}
	_, err = cluster.kubectl(ctx, "", "apply", "--kustomize", filepath.Join("../..", folder))
	return err
}

// installed returns the manifests that the README applies, with additionalKindsRole and rejectingPolicy. They are built
// once, and not applied with kubectl, which took a fifth of the CPU time of all tests.
var installed = sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
	folder, _, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return nil, err
	}
	text, err := kustomize(filepath.Join("../..", folder))
	if err != nil {
		return nil, err
	}
	return operator.Decode(strings.Join([]string{text, additionalKindsRole, rejectingPolicy}, "\n---\n"))
})

// kustomize returns what kubectl kustomize prints.
func kustomize(folder string) (string, error) {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // namespaces first, as kubectl does
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return "", err
	}
	text, err := built.AsYaml()
	return string(text), err
}

// waitServed waits until the API server serves the kinds of nstpl.
func (cluster *testCluster) waitServed(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			definitions := &unstructured.UnstructuredList{}
			definitions.SetGroupVersionKind(definitionKind.GroupVersion().WithKind("CustomResourceDefinitionList"))
			if err := cluster.client.List(ctx, definitions); err != nil {
				return false, err
			}
			return !slices.ContainsFunc(definitions.Items, func(definition unstructured.Unstructured) bool {
				return !isEstablished(&definition)
			}), nil
		})
}

var namespaceListKind = schema.GroupVersionKind{Version: "v1", Kind: "NamespaceList"}

var definitionKind = schema.GroupVersionKind{
	Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
}

// isEstablished reports whether the API server serves the kind of a CustomResourceDefinition.
func isEstablished(definition *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(condition any) bool {
		fields, ok := condition.(map[string]any)
		return ok && fields["type"] == "Established" && fields["status"] == "True"
	})
}

// waitAdmissionPolicies waits until the API server enforces the admission policies, which replace or deny a forged
// creator. Until it knows their parameters, it denies all namespaces.
func (cluster *testCluster) waitAdmissionPolicies(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			bad := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "bad", Namespace: preexistingName(0)}}
			err := cluster.client.Create(ctx, bad, client.DryRunAll)
			return err != nil && strings.Contains(err.Error(), rejection), nil
		})
	if err != nil {
		return fmt.Errorf("wait for the policy integration-rejects: %w", err)
	}
	return cluster.waitDryRunNamespace(ctx, func(probe *corev1.Namespace, err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), v1alpha1.CreatorAnnotation) || err == nil &&
			hasStampedCreator(probe)
	})
}

// hasStampedCreator reports whether admission has replaced the empty creator of waitDryRunNamespace.
func hasStampedCreator(probe *corev1.Namespace) bool {
	return probe.Annotations[v1alpha1.CreatorAnnotation] != ""
}

// waitDryRunNamespace creates a namespace with an empty creator, which no user may set, by dry runs, until the result is as expected.
func (cluster *testCluster) waitDryRunNamespace(
	ctx context.Context, expected func(*corev1.Namespace, error) bool,
) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "probe", Annotations: map[string]string{v1alpha1.CreatorAnnotation: ""},
			}}
			err := cluster.client.Create(ctx, probe, client.DryRunAll)
			return expected(probe, err), nil
		})
}

// waitAggregatedRules waits until the operator's aggregated ClusterRole has the rules of all its parts.
func (cluster *testCluster) waitAggregatedRules(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			parts, aggregated := &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRole{}
			if err := cluster.client.List(ctx, parts,
				client.MatchingLabels{v1alpha1.AggregateLabel: "true"}); err != nil {
				return false, err
			}
			if err := cluster.client.Get(ctx, client.ObjectKey{Name: "nstpl-operator-populate"},
				aggregated); err != nil {
				return false, err
			}
			rules := map[string]bool{} // which Kubernetes aggregates once
			for _, part := range parts.Items {
				for _, rule := range part.Rules {
					rules[rule.String()] = true
				}
			}
			return len(aggregated.Rules) == len(rules), nil
		})
}

// startOperator starts the operator. It returns when the operator is ready and namespaces get their creators.
func (cluster *testCluster) startOperator(ctx context.Context, flags ...string) error {
	next, err := cluster.startReplica(ctx, append([]string{"--leader-elect=false"}, flags...)...)
	if err != nil {
		return err
	}
	cluster.operator = next
	if len(flags) == 0 {
		cluster.defaultOperator = next
	}
	return cluster.waitDryRunNamespace(ctx, func(probe *corev1.Namespace, err error) bool {
		return err == nil && hasStampedCreator(probe)
	})
}

// checkVetting returns an error unless the API server calls the webhook that vets templates, to deny one whose object has
// no name. It does from the moment at which the first operator is ready. On a busy machine the call may fail.
func (cluster *testCluster) checkVetting(ctx context.Context) error {
	nameless := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "nameless"},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: selectLabel("nameless", "true"),
			Templates:  []runtime.RawExtension{{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap"}`)}},
		},
	}
	err := cluster.client.Create(ctx, nameless, client.DryRunAll)
	if err == nil {
		return errors.New("the operator is ready, but the API server does not call its webhooks")
	}
	if !strings.Contains(err.Error(), "webhook") {
		return fmt.Errorf("the operator is ready, but its webhook does not answer: %w", err)
	}
	return nil
}

// restartOperator kills the operator and starts it again.
func (cluster *testCluster) restartOperator(t *testing.T) {
	t.Helper()
	require.NoError(t, cluster.operator.Kill())
	require.NoError(t, cluster.startOperator(t.Context()))
}

// stop stops the operator and the control plane. It fails if the operator deleted objects that it had not created, or
// logged something that it must never log.
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

// commandLimit is how long a command of a test may run: one that waits for ever, as "kubectl delete" may, fails its test
// with its name.
const commandLimit = 2 * time.Minute

// kubectl runs the kubectl of the cluster's version as an administrator, and returns its standard output.
func (cluster *testCluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandLimit, fmt.Errorf("kubectl %v has not ended", args))
	defer cancel()
	out, err := cluster.controlPlane.RunKubectl(ctx, stdin, args...)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return out, err
}

// startReplica starts an operator, which may be one of several, and returns when it is ready.
func (cluster *testCluster) startReplica(ctx context.Context, flags ...string) (*operator.Process, error) {
	options := operator.Options{
		Binary: operatorBinary, Dir: cluster.dir, Kubeconfig: cluster.operatorKubeconfig, Flags: flags,
	}
	if cluster.behindService {
		options.Service = cluster.webhookAddress
	} else if isFree(cluster.webhookAddress) {
		options.Webhooks = cluster.webhookAddress
	}
	o, err := operator.Start(options)
	if err != nil {
		return nil, err
	}
	if err := o.AwaitReady(ctx); err != nil {
		return nil, errors.Join(err, o.Kill())
	}
	cluster.replicas = append(cluster.replicas, o)
	return o, nil
}

// isFree reports whether no process, such as another replica, listens at an address.
func isFree(address string) bool {
	listener, err := net.Listen("tcp", address)
	return err == nil && listener.Close() == nil
}

// newService starts a service in front of the webhooks of the operators that start from now on. It has their
// certificate.
func newService(t *testing.T, cluster *testCluster) *operator.Service {
	t.Helper()
	cluster.behindService = true
	service, err := operator.NewService(t.Context(), cluster.client, cluster.webhookAddress)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, service.Close()) })
	return service
}

// newReplicas starts two operators on a borrowed cluster, behind a service that calls both. The first one is that of
// the cluster.
func newReplicas(t *testing.T) (s *testScope, service *operator.Service, second *operator.Process) {
	t.Helper()
	cluster := borrowClusterWithoutOperator(t)
	service = newService(t, cluster)
	first, err := cluster.startReplica(t.Context(), "--leader-elect=true")
	require.NoError(t, err)
	cluster.operator = first
	second, err = cluster.startReplica(t.Context(), "--leader-elect=true")
	require.NoError(t, err)
	service.Use(first.Webhooks, second.Webhooks)
	return newScope(t, cluster), service, second
}

// lateReplica is a second operator whose watches can be delayed, behind the service of the webhooks with the first one.
type lateReplica struct {
	useFirst, useLate func()
	watches           *proxy
}

// newLateReplica starts two operators on a borrowed cluster. The service calls the first one until useLate is called.
func newLateReplica(t *testing.T) (*testScope, lateReplica) {
	t.Helper()
	cluster := borrowClusterWithoutOperator(t)
	service := newService(t, cluster)
	first, err := cluster.startReplica(t.Context(), "--leader-elect=true")
	require.NoError(t, err)
	cluster.operator = first
	service.Use(first.Webhooks)
	watches := newProxy(t, cluster, "late")
	late, err := cluster.startReplica(t.Context(), "--leader-elect=true", watches.kubeconfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = late.Kill() })
	return newScope(t, cluster), lateReplica{
		useFirst: func() { service.Use(first.Webhooks) }, useLate: func() { service.Use(late.Webhooks) }, watches: watches,
	}
}

// waitEstablished waits until the API server serves the kind of a CustomResourceDefinition. Just after its creation, it
// has no conditions, for which kubectl does not wait.
func waitEstablished(t *testing.T, cluster *testCluster, definition string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := cluster.kubectl(t.Context(), "", "wait", "--for=condition=Established", "crd", definition)
		assert.NoError(c, err)
	}, time.Minute, 100*time.Millisecond)
}
