package integration_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// systemScope has pods in system namespaces and in one of the scope, and a Node. All have attributes that are protected.
type systemScope struct {
	*testScope
	system     []string
	namespace  string
	kubelet    client.Client
	registered *corev1.Node
}

func newSystemScope(t *testing.T) systemScope {
	t.Helper()
	s := newScope(t, borrowCluster(t))
	y := systemScope{
		testScope: s, system: []string{metav1.NamespaceSystem, v1alpha1.OperatorNamespace},
		namespace: s.createNamespace("a").Name,
	}
	for _, namespace := range append(slices.Clone(y.system), y.namespace) {
		for _, name := range []string{"deleted", "evicted", "updated"} {
			y.createLabeledPod(namespace, name)
		}
	}
	for short, name := range map[string]string{
		"name": "app.kubernetes.io/name", "hostname": "kubernetes.io/hostname", "tenant": "tenant",
	} {
		s.protectAttribute("", short, v1alpha1.AttributeRule{
			AttributeKind: v1alpha1.LabelAttribute, AttributeName: name, GuardDeletion: true,
			RoleRef: v1alpha1.RoleReference{Kind: v1alpha1.ClusterRoleKind, Name: s.name("setter")},
		})
	}
	s.grant(s.name("nodes"), groupSubject("system:nodes"), policyRule("*", "", "nodes nodes/status namespaces"))
	y.kubelet, y.registered = y.newNode("registered", "system:nodes")
	require.NoError(t, y.kubelet.Create(t.Context(), y.registered.DeepCopy()))
	return y
}

// createLabeledPod creates a pod that every Pod Security Standard allows.
func (s systemScope) createLabeledPod(namespace, name string) {
	s.t.Helper()
	pod := newPod(namespace, name, func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"app.kubernetes.io/name": "nstpl-operator"}
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	})
	s.eventually(func(c *assert.CollectT) { // until the namespace has its default ServiceAccount
		assert.NoError(c, client.IgnoreAlreadyExists(s.client.Create(s.t.Context(), pod.DeepCopy())))
	})
}

// newNode returns the client of a kubelet and its Node, which is not created yet.
func (s systemScope) newNode(name string, groups ...string) (client.Client, *corev1.Node) {
	s.t.Helper()
	config, err := s.controlPlane.UserConfig("system:node:"+name, groups...)
	require.NoError(s.t, err)
	return s.newReadyClient(config), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: s.name(name), Labels: map[string]string{"kubernetes.io/hostname": name, "tenant": "a"},
	}}
}

// relabel changes a label of the registered Node, through a subresource or directly.
func (s systemScope) relabel(key, value string, isSubresource bool) error {
	patch := mergePatch(fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, key, value))
	if isSubresource {
		return s.kubelet.Status().Patch(s.t.Context(), s.registered.DeepCopy(), patch)
	}
	return s.kubelet.Patch(s.t.Context(), s.registered.DeepCopy(), patch)
}

func (s systemScope) evictPod(namespace, name string) error {
	return s.client.SubResource("eviction").Create(s.t.Context(), newPod(namespace, name),
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

func (s systemScope) deletePod(namespace, name string) error {
	return s.client.Delete(s.t.Context(), newPod(namespace, name))
}

func (s systemScope) updatePod(namespace string) error {
	return s.client.Patch(s.t.Context(), newPod(namespace, "updated"),
		mergePatch(`{"metadata": {"labels": {"app.kubernetes.io/name": "other"}}}`))
}

// expectDenials fails unless the requests are denied that are denied with and without the operator.
func (s systemScope) expectDenials(t *testing.T, attempt string) {
	t.Helper()
	for _, namespace := range append(slices.Clone(s.system), s.namespace) {
		require.Error(t, s.updatePod(namespace), namespace)
	}
	require.Error(t, s.evictPod(s.namespace, "evicted"))
	require.Error(t, s.deletePod(s.namespace, "deleted"))
	require.Error(t, s.relabel("tenant", "b", false))
	require.Error(t, s.relabel("tenant", "b", true))
	require.NoError(t, s.relabel("kubernetes.io/hostname", attempt, true))
	require.NoError(t, s.relabel("kubernetes.io/hostname", "again-"+attempt, false))
	_, another := s.newNode("another-"+attempt, "system:nodes")
	require.NoError(t, s.kubelet.Create(t.Context(), another))
	impostor, forged := s.newNode("forged-"+attempt, s.allVerbsGroup())
	require.Error(t, impostor.Create(t.Context(), forged))
}

// Without the operator, pods of its namespace and of kube-system can be replaced and nodes can register, even if their
// attributes are protected.
func TestAttributesAllowSystemPodsAndNodesWithoutOperator(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSystemScope(t)

	t.Run("attributes are protected with the operator", func(t *testing.T) {
		s.expectDenials(t, "with-operator")
	})

	t.Run("the same requests are denied without the operator", func(t *testing.T) {
		require.NoError(t, s.operator.Kill())
		s.expectDenials(t, "without-operator")
	})

	t.Run("system pods can be evicted and deleted without the operator", func(t *testing.T) {
		for _, namespace := range s.system {
			require.NoError(t, s.evictPod(namespace, "evicted"), namespace)
			require.NoError(t, s.deletePod(namespace, "deleted"), namespace)
		}
	})
}
