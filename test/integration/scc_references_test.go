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
	"nstpl.dev/nstpl/test/marks"
)

func newServiceAccount(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// accountUser returns the name by which a constraint refers to a ServiceAccount.
func accountUser(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// referenceScope has a constraint that refers to ServiceAccounts, and a client that creates pods.
type referenceScope struct {
	*testScope
	hosts   *v1alpha1.SecurityContextConstraints
	creator client.Client
}

func (r referenceScope) withT(t *testing.T) referenceScope {
	t.Helper()
	r.testScope = r.testScope.withT(t)
	return r
}

// expectRecorded fails unless the constraint has the identities of a namespace and, if it is named, its account.
func (r referenceScope) expectRecorded(c *assert.CollectT, namespace, name string) {
	assert.NoError(c, r.client.Get(r.t.Context(), client.ObjectKeyFromObject(r.hosts), r.hosts))
	identity, _ := scc.RecordedIdentity(r.hosts, scc.Reference{Namespace: namespace, Account: name})
	assert.NotEmpty(c, identity.Namespace, namespace)
	assert.Equal(c, name != "", identity.Account != "", "%s/%s", namespace, name)
}

// waitReferences waits until the constraint has exactly these users and groups.
func (r referenceScope) waitReferences(entries ...string) {
	r.t.Helper()
	r.eventually(func(c *assert.CollectT) {
		assert.NoError(c, r.client.Get(r.t.Context(), client.ObjectKeyFromObject(r.hosts), r.hosts))
		assert.ElementsMatch(c, entries, slices.Concat(r.hosts.Users, r.hosts.Groups))
	})
}

// tryPod is a dry run of the creation of a pod in the network of its host.
func (r referenceScope) tryPod(namespace, account string) error {
	return r.creator.Create(r.t.Context(), newPod(namespace, "p", func(p *corev1.Pod) {
		p.Spec.HostNetwork, p.Spec.ServiceAccountName = true, account
	}), client.DryRunAll)
}

// A ServiceAccount or namespace that is created again does not inherit the constraints of the deleted one, even if the
// operator was down at the deletion.
func TestSCCReferencesToDeletedAccountsAreRemoved(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	a, b := s.createNamespace("a").Name, s.createNamespace("b").Name
	for _, each := range []*corev1.ServiceAccount{
		newServiceAccount(a, "x"), newServiceAccount(a, "y"), newServiceAccount(b, "x"),
	} {
		require.NoError(t, s.client.Create(t.Context(), each))
	}
	hosts := &v1alpha1.SecurityContextConstraints{
		ObjectMeta: metav1.ObjectMeta{Name: "hosts"}, AllowHostNetwork: true, AllowHostPorts: true,
		RunAsUser:      v1alpha1.RunAsUserStrategyOptions{Type: v1alpha1.RunAsAny},
		SELinuxContext: v1alpha1.SELinuxContextStrategyOptions{Type: v1alpha1.RunAsAny},
		Users: []string{
			"jane", accountUser(a, "x"), accountUser(a, "y"), accountUser(b, "x"), accountUser(a, "later"),
			accountUser("nowhere", "x"),
		},
		Groups: []string{"devs", "system:serviceaccounts:" + b, "system:serviceaccounts:nowhere"},
	}
	require.NoError(t, s.client.Create(t.Context(), hosts))
	operator, _ := s.newPodAdmin("operator")
	r := referenceScope{s, hosts, operator}
	s.eventually(func(c *assert.CollectT) {
		for _, each := range []*corev1.ServiceAccount{
			newServiceAccount(a, "x"), newServiceAccount(a, "y"), newServiceAccount(b, "x"), newServiceAccount(b, ""),
		} {
			r.expectRecorded(c, each.Namespace, each.Name)
		}
		assert.NoError(c, r.tryPod(a, "x"))
		assert.NoError(c, r.tryPod(b, "x"))
	})

	t.Run("an account that is created again at once has no access", func(t *testing.T) {
		expectAccountCreatedAgainHasNoAccess(t, r.withT(t), a, b)
	})

	t.Run("an account that is created again while the operator is down has no access", func(t *testing.T) {
		expectAccountCreatedAgainWithoutOperatorHasNoAccess(t, r.withT(t), a, b)
	})

	t.Run("a reference to an account that does not exist yet stays until its deletion", func(t *testing.T) {
		expectReferenceStaysUntilDeletion(t, r.withT(t), a)
	})

	t.Run("a restart writes nothing", func(t *testing.T) {
		r := r.withT(t)
		hosts := r.hosts.DeepCopy()
		r.eventually(func(c *assert.CollectT) { // the status describes what was removed last
			assert.NoError(c, r.client.Get(t.Context(), client.ObjectKeyFromObject(hosts), hosts))
			assert.Equal(c, hosts.Generation, hosts.Status.ObservedGeneration)
		})
		r.expectRestartWritesNothing("sccreference")
	})
}

func expectAccountCreatedAgainHasNoAccess(t *testing.T, r referenceScope, a, b string) {
	t.Helper()
	require.NoError(t, r.client.Delete(t.Context(), newServiceAccount(a, "x")))
	require.NoError(t, r.client.Create(t.Context(), newServiceAccount(a, "x")))
	require.True(t, apierrors.IsForbidden(r.tryPod(a, "x")))
	r.waitReferences("jane", accountUser(a, "y"), accountUser(b, "x"), accountUser(a, "later"),
		accountUser("nowhere", "x"), "devs", "system:serviceaccounts:"+b, "system:serviceaccounts:nowhere")
	require.True(t, apierrors.IsForbidden(r.tryPod(a, "x")))
	r.eventually(func(c *assert.CollectT) {
		events := &eventsv1.EventList{}
		assert.NoError(c, r.client.List(t.Context(), events, client.InNamespace(metav1.NamespaceDefault)))
		assert.True(c, slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Reason == "StaleReferencesRemoved" && e.Regarding.Name == "hosts" && e.Note != ""
		}))
	})
}

func expectAccountCreatedAgainWithoutOperatorHasNoAccess(t *testing.T, r referenceScope, a, b string) {
	t.Helper()
	require.NoError(t, r.operator.Kill())
	require.NoError(t, r.client.Delete(t.Context(), newServiceAccount(a, "y")))
	require.NoError(t, r.client.Create(t.Context(), newServiceAccount(a, "y")))
	require.NoError(t, r.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b}}))
	r.eventually(func(c *assert.CollectT) {
		assert.NoError(c, r.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b}}))
	})
	r.eventually(func(c *assert.CollectT) { // the API server may deny it until its cache has the new namespace
		assert.NoError(c, r.client.Create(t.Context(), newServiceAccount(b, "x")))
	})
	require.NoError(t, r.startOperator(t.Context()))
	r.waitReferences("jane", accountUser(a, "later"), accountUser("nowhere", "x"), "devs",
		"system:serviceaccounts:nowhere")
	require.True(t, apierrors.IsForbidden(r.tryPod(a, "y")))
	require.True(t, apierrors.IsForbidden(r.tryPod(b, "x")))
}

func expectReferenceStaysUntilDeletion(t *testing.T, r referenceScope, a string) {
	t.Helper()
	require.NoError(t, r.client.Create(t.Context(), newServiceAccount(a, "later")))
	r.eventually(func(c *assert.CollectT) {
		r.expectRecorded(c, a, "later")
		assert.NoError(c, r.tryPod(a, "later"))
	})
	listed := r.hosts.DeepCopy()
	listed.Users = append(listed.Users, accountUser(a, "x"))
	// a patch, since the operator writes to the constraint, too
	require.NoError(t, r.client.Patch(t.Context(), listed, client.MergeFrom(r.hosts)))
	r.eventually(func(c *assert.CollectT) {
		r.expectRecorded(c, a, "x")
		assert.NoError(c, r.tryPod(a, "x"))
	})
	require.NoError(t, r.client.Delete(t.Context(), newServiceAccount(a, "later")))
	r.waitReferences("jane", accountUser(a, "x"), accountUser("nowhere", "x"), "devs", "system:serviceaccounts:nowhere")
}
