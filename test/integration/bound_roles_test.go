package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/measure"
)

// The owner of a namespace, who may bind what it holds, gets no rules of a populated Role by binding it while it has
// none.
func TestOwnersGetNoRulesOfPopulatedRoles(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	const widgets = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: widgets}\n" +
		"rules: [{apiGroups: [example.com], resources: [widgets], verbs: [get]}]\n"
	template := s.createTemplate("widgets", documents(widgets, bindingToRole("widgets", "widgets", "jane")), s.selectsClass("class", "a"))
	populated, later := s.createPopulatedNamespace("populated", withLabel("class", "a")), s.createNamespace("later")
	s.waitPresent(populated, widgets)
	s.waitInitialized(later)
	for _, ns := range []*corev1.Namespace{populated, later} {
		s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, "admin", userSubject(s.name("owner")))
	}
	owner, err := s.newUserClient(s.name("owner"))
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, s.isAllowed(s.name("owner"), later.Name, "create", "secrets"))
	})
	roleIn := func(ns *corev1.Namespace) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "widgets"}}
	}
	mayGetWidgets := func(ns *corev1.Namespace) bool {
		return s.isAllowedInGroup(s.name("owner"), ns.Name, "get", "example.com", "widgets")
	}

	const denied = "the rules and owners of a populated Role belong to its NamespaceTemplate"
	expectForbidden(t, owner.Patch(t.Context(), roleIn(populated), mergePatch(`{"rules": []}`)), denied)
	expectForbidden(t, owner.Delete(t.Context(), roleIn(populated)), denied)
	// Kubernetes' garbage collector would delete it.
	expectForbidden(t, owner.Patch(t.Context(), roleIn(populated), mergePatch(
		`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]}}`)), denied)
	expectForbidden(t, owner.DeleteAllOf(t.Context(), &rbacv1.Role{}, client.InNamespace(populated.Name)), denied)

	require.NoError(t, owner.Create(t.Context(), roleIn(later)))
	mine := &rbacv1.RoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Namespace: later.Name, Name: "mine"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: v1alpha1.RoleKind, Name: "widgets"},
		Subjects:   []rbacv1.Subject{userSubject(s.name("owner"))},
	}
	theirs, err := runtime.DefaultUnstructuredConverter.ToUnstructured(mine)
	require.NoError(t, err)
	s.applyAsNstpl(owner, later, &unstructured.Unstructured{Object: theirs})
	s.patchNamespace(later, `{"metadata": {"labels": {"class": "a"}}}`)
	s.waitCondition(later, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, "rolebinding.rbac.authorization.k8s.io/mine, which no template declares as it "+
			"is, would grant its rules: delete the RoleBinding, rename the Role")
	})
	require.False(t, mayGetWidgets(later))
	// Neither does one with the name of a declared RoleBinding.
	named := mine.DeepCopy()
	named.Name, named.ResourceVersion = "widgets", ""
	require.NoError(t, owner.Create(t.Context(), named))
	require.NoError(t, owner.Delete(t.Context(), mine))
	s.waitCondition(later, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "rolebinding.rbac.authorization.k8s.io/widgets, which no template declares as it ")
	})
	require.False(t, mayGetWidgets(later))
	require.NoError(t, owner.Delete(t.Context(), named))
	s.waitPresent(later, widgets)
	s.waitPopulated(later)
	require.False(t, mayGetWidgets(later))

	// A Role that a finalizer of the owner keeps has no rules, also if it is declared again.
	removeFinalizer := s.addFinalizer(populated, parseYAML(t, widgets)[0])
	s.updateTemplate(template, withObjects(t, configMap("a", "1")))
	isEmpty := func(c *assert.CollectT) {
		role := roleIn(populated)
		if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(role), role)) {
			assert.Empty(c, role.Rules)
		}
	}
	s.eventually(isEmpty)
	mine = mine.DeepCopy()
	mine.Namespace, mine.ResourceVersion = populated.Name, ""
	require.NoError(t, owner.Create(t.Context(), mine))
	s.updateTemplate(template, withObjects(t, documents(widgets, configMap("a", "2"))))
	s.waitPresent(populated, configMap("a", "2"))
	s.waitNotPopulated(populated, "finalizers keep it")
	require.False(t, mayGetWidgets(populated))
	// Without the finalizer, the Role is gone. A new one would have the rules.
	removeFinalizer()
	s.waitNotPopulated(populated, "rolebinding.rbac.authorization.k8s.io/mine, which no template declares as it is, would grant")
	require.False(t, mayGetWidgets(populated))
	require.NoError(t, owner.Delete(t.Context(), mine))
	s.waitPresent(populated, widgets)
	s.waitPopulated(populated)
}

// A new namespace is held, so RoleBindings that may bind its Roles before they exist are looked for in the API server's
// cache, which does not wait for etcd. One that was prepared before anything held the namespace is found there.
func TestRolesOfHeldNamespacesWaitForNoConsistentList(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	const widgets = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: widgets}\n" +
		"rules: [{apiGroups: [example.com], resources: [widgets], verbs: [get]}]\n"
	s.createTemplate("widgets", widgets)
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	s.createPopulatedNamespace("first")
	clients, err := kubernetes.NewForConfig(s.controlPlane.RESTConfig())
	require.NoError(t, err)
	consistent := func() float64 {
		all, err := measure.OfAPIServer(t.Context(), clients)
		require.NoError(t, err)
		return all.Sum("apiserver_watch_cache_consistent_read_total", `resource="rolebindings"`)
	}
	before := consistent()
	require.NoError(t, s.client.List(t.Context(), &rbacv1.RoleBindingList{}))
	require.Greater(t, consistent(), before, "a consistent list is counted")
	before = consistent()
	s.createPopulatedNamespace("second")
	require.Zero(t, consistent()-before)

	// Without an operator, nothing holds requests, as before the installation.
	require.NoError(t, s.operator.Kill())
	require.NoError(t, s.removeWebhooks(t.Context()))
	older := s.createNamespace("older", withLabel(v1alpha1.InitializingLabel, "true"))
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: older.Name, Name: "widgets"}}
	require.NoError(t, s.client.Create(t.Context(), role))
	s.bindRole(older.Name, v1alpha1.RoleKind, "widgets", userSubject(s.name("owner")))
	require.NoError(t, s.client.Delete(t.Context(), role))
	require.NoError(t, s.startOperator(t.Context()))
	s.createPopulatedNamespace("third")
	s.waitNotPopulated(older, "which no template declares as it is, would grant its rules")
	require.False(t, s.isAllowedInGroup(s.name("owner"), older.Name, "get", "example.com", "widgets"))
}

// A RoleBinding that the same change of a template corrects does not keep its Role from being created, so it is not
// deleted until then.
func TestARoleIsCreatedWhoseRoleBindingChanges(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const widgets = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: widgets}\n" +
		"rules: [{apiGroups: [example.com], resources: [widgets], verbs: [get]}]\n"
	template := s.createTemplate("widgets", bindingToRole("widgets", "widgets", "jane"))
	ns := s.createPopulatedNamespace("a")
	binding := parseYAML(t, bindingToRole("widgets", "widgets", "jane"))[0]
	before := s.mustGet(ns, binding).GetUID()
	changed := documents(widgets, bindingToRole("widgets", "widgets", "john"))
	s.updateTemplate(template, withObjects(t, changed))
	s.waitPresent(ns, changed)
	s.waitPopulated(ns)
	require.Equal(t, before, s.mustGet(ns, binding).GetUID())
}
