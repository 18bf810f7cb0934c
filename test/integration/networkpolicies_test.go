package integration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// denyAll returns a NetworkPolicy that allows nothing, with some more fields of its spec.
func denyAll(name, fields string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + name + "}\n" +
		"spec: {podSelector: {}" + fields + "}\n"
}

// allowAll returns a NetworkPolicy that allows everything, with as many annotations as the API server takes.
func allowAll(ns *corev1.Namespace, name string) *networkingv1.NetworkPolicy {
	key := "example.com/filled"
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns.Name, Name: name,
			Annotations: map[string]string{key: strings.Repeat("x", 256<<10-len(key))},
		},
		Spec: networkingv1.NetworkPolicySpec{
			Ingress: []networkingv1.NetworkPolicyIngressRule{{}}, Egress: []networkingv1.NetworkPolicyEgressRule{{}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		},
	}
}

// waitClosed waits until a NetworkPolicy allows nothing.
func (s *testScope) waitClosed(ns *corev1.Namespace, name string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		policy := &networkingv1.NetworkPolicy{}
		if assert.NoError(c, s.client.Get(s.t.Context(), types.NamespacedName{Namespace: ns.Name, Name: name}, policy)) {
			assert.Empty(c, policy.Spec.PodSelector)
			assert.Contains(c, policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
			assert.Empty(c, policy.Spec.Ingress)
			if slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
				assert.Empty(c, policy.Spec.Egress)
			}
		}
	})
}

// The owner of a namespace cannot open a populated NetworkPolicy by a field that the template leaves out.
func TestOwnersOpenNoNetworkPolicies(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	owner := s.newUserClientOf("owner", documents(denyAll("both", ", policyTypes: [Ingress, Egress]"), denyAll("ingress", "")))
	ns := s.createPopulatedNamespace("a")
	for name, edit := range map[string]string{
		"both":    `{"spec": {"ingress": [{}], "egress": [{}]}}`,
		"ingress": `{"spec": {"policyTypes": ["Egress"], "egress": [{}]}}`,
	} {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}}
		s.eventually(func(c *assert.CollectT) { assert.NoError(c, owner.Patch(t.Context(), policy, mergePatch(edit))) })
		s.waitClosed(ns, name)
	}
}

// newUserClientOf returns a client of an owner of the namespaces of the test, which get the objects, too.
func (s *testScope) newUserClientOf(
	name, objects string, change ...func(*v1alpha1.NamespaceTemplate),
) client.Client {
	s.t.Helper()
	s.createTemplate("objects", documents(grantTo("owner", s.name(name)), objects), change...)
	owner, err := s.newUserClient(s.name(name))
	require.NoError(s.t, err)
	return owner
}

// An object of another client that takes no annotation of the operator does not keep a NetworkPolicy out of a
// namespace, nor others that no template declares in it.
func TestAFilledNetworkPolicyKeepsNothingOut(t *testing.T) {
	t.Parallel()
	for name, isAuthoritative := range map[string]bool{"authoritative": true, "not authoritative": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			owner := s.newUserClientOf("owner", denyAll(replacedName, ", policyTypes: [Ingress, Egress]"),
				func(template *v1alpha1.NamespaceTemplate) {
					if isAuthoritative {
						template.Spec.Authoritative = []v1alpha1.GroupKind{{Group: networkingv1.GroupName, Kind: "NetworkPolicy"}}
					}
				})
			ns := s.createPopulatedNamespace("a")
			s.eventually(func(c *assert.CollectT) {
				theirs := allowAll(ns, replacedName)
				assert.NoError(c, client.IgnoreNotFound(owner.Delete(t.Context(), theirs)))
				assert.NoError(c, owner.Create(t.Context(), theirs)) // unless the operator has created its own first
			})
			if isAuthoritative {
				require.NoError(t, owner.Create(t.Context(), allowAll(ns, undeclaredName)))
				s.waitAbsent(ns, denyAll(undeclaredName, ""))
			}
			s.waitClosed(ns, replacedName)
			s.waitPopulated(ns)
		})
	}
}
