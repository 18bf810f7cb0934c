package integration_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/test/marks"
)

// ownIDConstraints has a constraint that all may use and that gives each service account an ID of its own, and a laxer
// one that all may use, too.
const ownIDConstraints = `
apiVersion: policy.nstpl.dev/v1alpha1
kind: SecurityContextConstraints
metadata: {name: own-id}
runAsUser: {type: MustRunAsServiceAccount}
seLinuxContext: {type: RunAsAny}
priority: 10
groups: ["system:authenticated"]
---
apiVersion: policy.nstpl.dev/v1alpha1
kind: SecurityContextConstraints
metadata: {name: privileged}
allowPrivilegedContainer: true
runAsUser: {type: MustRunAsNonRoot}
seLinuxContext: {type: RunAsAny}
groups: ["system:authenticated"]
`

// accountScope is a scope on its own cluster with ownIDConstraints and a namespace.
type accountScope struct {
	*testScope
	namespace string
}

func newAccountScope(t *testing.T) accountScope {
	t.Helper()
	s := newScope(t, borrowCluster(t))
	s.applyYAML(ownIDConstraints)
	a := accountScope{s, s.createNamespace("a").Name}
	a.waitID("default")
	a.eventually(func(c *assert.CollectT) {
		created := a.newPod("first", "default")
		if assert.NoError(c, a.client.Create(t.Context(), created, client.DryRunAll)) {
			assert.Equal(c, "own-id", created.Annotations[v1alpha1.SCCAnnotation])
		}
	})
	return a
}

func (s accountScope) withT(t *testing.T) accountScope {
	t.Helper()
	s.testScope = s.testScope.withT(t)
	return s
}

// newPod returns a pod of a service account.
func (s accountScope) newPod(name, account string, change ...func(*corev1.Pod)) *corev1.Pod {
	change = append(change, func(p *corev1.Pod) { p.Spec.ServiceAccountName = account })
	return newPod(s.namespace, name, change...)
}

// newAccount creates a service account.
func (s accountScope) newAccount(name string) *corev1.ServiceAccount {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	require.NoError(s.t, s.client.Create(s.t.Context(), account))
	return account
}

// waitID returns the ID of a service account once it has one.
func (s accountScope) waitID(name string) (id string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		account := &corev1.ServiceAccount{}
		assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, account))
		id = account.Annotations[v1alpha1.AccountUIDAnnotation]
		assert.NotEmpty(c, id)
	})
	return id
}

// userOf returns the user ID that a new pod of a service account is given.
func (s accountScope) userOf(account string) string {
	s.t.Helper()
	created := s.newPod("new", account)
	require.NoError(s.t, s.client.Create(s.t.Context(), created, client.DryRunAll))
	require.Equal(s.t, "own-id", created.Annotations[v1alpha1.SCCAnnotation])
	return fmt.Sprint(*created.Spec.Containers[0].SecurityContext.RunAsUser)
}

func parseID(t *testing.T, text string) int64 {
	t.Helper()
	id, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return id
}

func TestSCCGivesEachServiceAccountAnID(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newAccountScope(t)

	t.Run("the IDs differ and are the namespace's", func(t *testing.T) {
		s := s.withT(t)
		ns := &corev1.Namespace{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: s.namespace}, ns))
		blocks, err := scc.ParseBlocks(ns.Annotations[v1alpha1.UIDRangeAnnotation])
		require.NoError(t, err)
		ids := map[string]bool{s.userOf("default"): true}
		require.NoError(t, concurrently(20, func(i int) error {
			return s.client.Create(t.Context(), &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: fmt.Sprint("many-", i)},
			})
		}))
		for i := range 20 {
			id := s.userOf(fmt.Sprint("many-", i)) // which waits for the ID
			require.False(t, ids[id], id)
			ids[id] = true
			number := parseID(t, id)
			require.Greater(t, number, blocks[0].Min)
			require.LessOrEqual(t, number, blocks[0].Max)
		}
	})

	t.Run("a namespace has too few IDs", func(t *testing.T) {
		s := s.withT(t)
		few := s.createNamespace("few", func(ns *corev1.Namespace) {
			ns.Annotations = map[string]string{v1alpha1.UIDRangeAnnotation: "1900000000/2"}
		})
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: few.Name, Name: "more"}}
		require.NoError(t, s.client.Create(t.Context(), account))
		s.waitEvent(few, corev1.EventTypeWarning, scc.ReasonBlockExhausted, scc.ErrBlockExhausted.Error())
	})

	t.Run("a pod has no other ID", func(t *testing.T) {
		s := s.withT(t)
		s.newAccount("one")
		s.newAccount("two")
		other := parseID(t, s.waitID("two"))
		required := s.newPod("forged", "one", func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.RequiredSCCAnnotation: "own-id"}
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &other}
		})
		err := s.client.Create(t.Context(), required)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, fmt.Sprintf("%d is not allowed: it must be %s", other, s.waitID("one")))
	})

	t.Run("an account that is created again has another ID at once", func(t *testing.T) {
		s := s.withT(t)
		for range 5 {
			account := s.newAccount("again")
			id := s.userOf("again")
			require.NoError(t, s.client.Delete(t.Context(), account))
			s.newAccount("again")
			require.NotEqual(t, id, s.userOf("again"))
			s.delete(&corev1.ServiceAccount{ObjectMeta: account.ObjectMeta})
		}
	})

	t.Run("a restart writes nothing", func(t *testing.T) {
		s.withT(t).expectRestartWritesNothing("accountid")
	})

	t.Run("an account that is created while the operator is down waits", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, s.operator.Kill())
		s.newAccount("later")
		require.NoError(t, s.startOperator(t.Context()))
		require.Equal(t, s.userOf("later"), s.waitID("later"))
	})

	t.Run("without the constraint, accounts get no ID", func(t *testing.T) {
		s := s.withT(t)
		s.delete(&v1alpha1.SecurityContextConstraints{ObjectMeta: metav1.ObjectMeta{Name: "own-id"}})
		// The reference needs the same watch.
		s.newAccount("named")
		privileged := &v1alpha1.SecurityContextConstraints{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: "privileged"}, privileged))
		changed := privileged.DeepCopy()
		changed.Users = []string{"system:serviceaccount:" + s.namespace + ":named"}
		require.NoError(t, s.client.Patch(t.Context(), changed, client.MergeFrom(privileged)))
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(privileged), privileged))
			assert.NotEmpty(c, privileged.Annotations[v1alpha1.ReferencesAnnotation])
		})
		require.Empty(t, s.newAccount("without").Annotations)
		s.delete(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "named"}})
		// The operator receives this deletion after the creation of the other account.
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(privileged), privileged))
			assert.Empty(c, privileged.Users)
		})
		account := &corev1.ServiceAccount{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "without"}, account))
		require.Empty(t, account.Annotations)
	})
}

// An administrator may choose the user IDs of a namespace when it is created. The operator may learn of its service
// accounts before it learns of the namespace.
func TestSCCAccountsMayBeKnownBeforeTheirNamespace(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newAccountScope(t)
	through := restartBehindProxy(t, s.testCluster)
	s.newAccount("known")
	s.waitID("known")
	through.holdWatches(t, "/api/v1/namespaces")
	few := s.createNamespace("few", func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{v1alpha1.UIDRangeAnnotation: "1900000000/2"}
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: few.Name, Name: "default"}}
	s.eventually(func(c *assert.CollectT) { // Kubernetes creates it
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(account), account))
	})
	s.newAccount("later")
	s.waitID("later") // one watch delivers all service accounts
	through.releaseWatches()
	accountScope{s.testScope, few.Name}.waitID("default")
}

// Not even an administrator changes the ID of a service account, whether the operator runs or not.
func TestSCCIDsOfServiceAccountsAreGuarded(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newAccountScope(t)
	victim := s.waitID("default")
	s.newAccount("mine")
	s.waitID("mine")
	mine := func() *corev1.ServiceAccount {
		account := &corev1.ServiceAccount{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "mine"}, account))
		return account
	}
	annotate := func(value string) string {
		return fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`, v1alpha1.AccountUIDAnnotation, value)
	}
	attempts := map[string]func() error{
		"create": func() error {
			return s.client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: s.namespace, Name: "forged",
				Annotations: map[string]string{v1alpha1.AccountUIDAnnotation: victim},
			}})
		},
		"patch":  func() error { return s.client.Patch(t.Context(), mine(), mergePatch(annotate(`"`+victim+`"`))) },
		"remove": func() error { return s.client.Patch(t.Context(), mine(), mergePatch(annotate("null"))) },
		"update": func() error {
			account := mine()
			account.Annotations = nil
			return s.client.Update(t.Context(), account)
		},
		"apply": func() error {
			_, err := s.kubectl(t.Context(), fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: "+
				"{name: mine, namespace: %s, annotations: {%s: %q}}", s.namespace, v1alpha1.AccountUIDAnnotation, victim),
				"apply", "--server-side", "--force-conflicts", "--filename", "-")
			return err
		},
	}
	check := func() {
		for name, attempt := range attempts {
			require.ErrorContains(t, attempt(), "only the operator allocates user IDs (nstpl:constraint-account)", name)
		}
	}
	check()
	require.NoError(t, s.client.Patch(t.Context(), mine(), mergePatch(`{"metadata": {"labels": {"a": "b"}}}`)))
	require.NoError(t, s.operator.Kill())
	check()
	require.NoError(t, s.startOperator(t.Context()))
	require.NotEqual(t, victim, s.userOf("mine"))
}
