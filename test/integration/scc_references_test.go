package integration_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
)

// A ServiceAccount or namespace that is created again does not inherit the constraints of the deleted one, even if the
// operator was down at the deletion.
func TestSCCReferencesToDeletedAccountsAreRemoved(t *testing.T) {
	t.Parallel()
	s := newSCCScope(t)
	a, b := s.createNamespace("a").Name, s.createNamespace("b").Name
	account := func(namespace, name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	user := func(namespace, name string) string { return "system:serviceaccount:" + namespace + ":" + name }
	for _, each := range []*corev1.ServiceAccount{account(a, "x"), account(a, "y"), account(b, "x")} {
		require.NoError(t, s.client.Create(t.Context(), each))
	}
	hosts := &v1alpha1.SecurityContextConstraints{
		ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, AllowHostNetwork: true, AllowHostPorts: true,
		RunAsUser:      v1alpha1.RunAsUserStrategyOptions{Type: v1alpha1.RunAsAny},
		SELinuxContext: v1alpha1.SELinuxContextStrategyOptions{Type: v1alpha1.RunAsAny},
		Users: []string{
			"jane", user(a, "x"), user(a, "y"), user(b, "x"), user(a, "later"), user("nowhere", "x"),
		},
		Groups: []string{"devs", "system:serviceaccounts:" + b, "system:serviceaccounts:nowhere"},
	}
	require.NoError(t, s.client.Create(t.Context(), hosts))
	seen := func(c *assert.CollectT, namespace, name string) {
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(hosts), hosts))
		identity, _ := scc.RecordedIdentity(hosts, scc.Reference{Namespace: namespace, Account: name})
		assert.NotEmpty(c, identity.Namespace, namespace)
		assert.Equal(c, name != "", identity.Account != "", "%s/%s", namespace, name)
	}
	names := func(entries ...string) {
		t.Helper()
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(hosts), hosts))
			assert.ElementsMatch(c, entries, slices.Concat(hosts.Users, hosts.Groups))
		})
	}
	operator, _ := s.newPodAdmin("operator")
	admitted := func(namespace, name string) error {
		return operator.Create(t.Context(), newPod(namespace, "p", func(p *corev1.Pod) {
			p.Spec.HostNetwork, p.Spec.ServiceAccountName = true, name
		}), client.DryRunAll)
	}
	s.eventually(func(c *assert.CollectT) {
		for _, each := range []*corev1.ServiceAccount{
			account(a, "x"), account(a, "y"), account(b, "x"), account(b, ""),
		} {
			seen(c, each.Namespace, each.Name)
		}
		assert.NoError(c, admitted(a, "x"))
		assert.NoError(c, admitted(b, "x"))
	})

	t.Run("an account that is created again at once has no access", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, s.client.Delete(t.Context(), account(a, "x")))
		require.NoError(t, s.client.Create(t.Context(), account(a, "x")))
		require.True(t, apierrors.IsForbidden(admitted(a, "x")))
		names("jane", user(a, "y"), user(b, "x"), user(a, "later"), user("nowhere", "x"), "devs",
			"system:serviceaccounts:"+b, "system:serviceaccounts:nowhere")
		require.True(t, apierrors.IsForbidden(admitted(a, "x")))
		s.eventually(func(c *assert.CollectT) {
			events := &eventsv1.EventList{}
			assert.NoError(c, s.client.List(t.Context(), events, client.InNamespace(metav1.NamespaceDefault)))
			assert.True(c, slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
				return e.Reason == "StaleReferencesRemoved" && e.Regarding.Name == "hosts" && e.Note != ""
			}))
		})
	})

	t.Run("an account that is created again while the operator is down has no access", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, s.operator.Kill())
		require.NoError(t, s.client.Delete(t.Context(), account(a, "y")))
		require.NoError(t, s.client.Create(t.Context(), account(a, "y")))
		require.NoError(t, s.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b}}))
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, s.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b}}))
		})
		require.NoError(t, s.client.Create(t.Context(), account(b, "x")))
		require.NoError(t, s.startOperator(t.Context()))
		names("jane", user(a, "later"), user("nowhere", "x"), "devs", "system:serviceaccounts:nowhere")
		require.True(t, apierrors.IsForbidden(admitted(a, "y")))
		require.True(t, apierrors.IsForbidden(admitted(b, "x")))
	})

	t.Run("a reference to an account that does not exist yet stays until its deletion", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, s.client.Create(t.Context(), account(a, "later")))
		s.eventually(func(c *assert.CollectT) {
			seen(c, a, "later")
			assert.NoError(c, admitted(a, "later"))
		})
		listed := hosts.DeepCopy()
		listed.Users = append(listed.Users, user(a, "x"))
		// a patch, since the operator writes to the constraint, too
		require.NoError(t, s.client.Patch(t.Context(), listed, client.MergeFrom(hosts)))
		s.eventually(func(c *assert.CollectT) {
			seen(c, a, "x")
			assert.NoError(c, admitted(a, "x"))
		})
		require.NoError(t, s.client.Delete(t.Context(), account(a, "later")))
		names("jane", user(a, "x"), user("nowhere", "x"), "devs", "system:serviceaccounts:nowhere")
	})

	t.Run("a restart writes nothing", func(t *testing.T) {
		s := s.withT(t)
		s.expectRestartWritesNothing("sccreference")
	})
}
