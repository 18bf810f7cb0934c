package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// treePolicyKinds are the kinds that the templates of trees are authoritative for.
var treePolicyKinds = []v1alpha1.GroupKind{
	{Group: rbacv1.GroupName, Kind: "Role"}, {Group: rbacv1.GroupName, Kind: "RoleBinding"}, {Kind: "ResourceQuota"},
}

func authoritative(policy v1alpha1.AuthoritativePolicy) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Authoritative, template.Spec.AuthoritativePolicy = treePolicyKinds, policy
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	}
}

// occupiedName is the name of a declared RoleBinding that others create first.
const occupiedName = "occupied-by-what-is-" + undeclaredName

// clusterAdminBinding returns a RoleBinding whose roleRef differs from that of viewerBinding.
func clusterAdminBinding(namespace, name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
}

// TestAuthoritativeTemplateDeletesOtherObjects follows the table "Namespace Scoped Policies" of the Git User Guide.
func TestAuthoritativeTemplateDeletesOtherObjects(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.createSpace("a", "", "pods", "50")
	inSpace := s.selectsSpace("a")
	template := s.createTemplate("root",
		documents(readerRole("declared", "configmaps"), viewerBinding("declared.binding"), viewerBinding(occupiedName)),
		inSpace,
		authoritative(v1alpha1.AuthoritativeDelete))
	s.createTemplate("other", documents(readerRole("of-another-template", "configmaps"), configMap("c", "v")),
		inSpace)
	ns := s.createNamespace("n", s.inSpace("a"))
	elsewhere := s.createNamespace("elsewhere")
	s.waitInitialized(ns)
	declared := documents(readerRole("declared", "configmaps"), viewerBinding("declared.binding"),
		viewerBinding(occupiedName), readerRole("of-another-template", "configmaps"))
	s.waitPresent(ns, declared)

	t.Run("undeclared objects of the kinds are deleted", func(t *testing.T) {
		s := s.withT(t)
		alien := documents(readerRole("undeclared-secret-admin", "configmaps"), viewerBinding("undeclared-binding"),
			podQuota("undeclared-quota"))
		s.createObjects(elsewhere.Name, alien)
		s.createObjects(ns.Name, configMap("undeclared-but-free", "v"))
		s.createObjects(ns.Name, alien)
		s.waitAbsent(ns, alien)
		s.waitEvent(ns, corev1.EventTypeWarning, "UndeclaredDeleted",
			"role.rbac.authorization.k8s.io/undeclared-secret-admin: was deleted: no template declares it, and template "+template.Name+" is authoritative for its kind")
		s.waitPresent(ns, declared)
		s.waitPresent(ns, configMap("undeclared-but-free", "v"))
		s.mustGet(ns, parseYAML(t, podQuota(v1alpha1.QuotaName))[0])
	})

	t.Run("declared objects are corrected and created again", func(t *testing.T) {
		s := s.withT(t)
		edited := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "declared"},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"},
			}},
		}
		require.NoError(t, s.client.Update(t.Context(), edited))
		s.waitPresent(ns, declared)
		s.delete(edited)
		s.waitPresent(ns, declared)
	})

	t.Run("a binding with another roleRef is replaced", func(t *testing.T) {
		requireOccupiedBindingReplaced(s.withT(t), ns, declared)
	})

	t.Run("the label of a template does not keep an object", func(t *testing.T) {
		s := s.withT(t)
		forged := parseYAML(t, readerRole("undeclared-forged", "configmaps"))[0]
		forged.SetNamespace(ns.Name)
		forged.SetLabels(map[string]string{v1alpha1.TemplateNameLabel: template.Name})
		require.NoError(t, s.client.Create(t.Context(), forged))
		s.waitDeleted(forged)
	})

	t.Run("an object that is declared later is taken over", func(t *testing.T) {
		s := s.withT(t)
		s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Templates = append(template.Spec.Templates,
				rawObjects(t, readerRole("undeclared-later", "configmaps"))...)
		})
		s.waitPresent(ns, readerRole("undeclared-later", "configmaps"))
		s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Templates = template.Spec.Templates[:len(template.Spec.Templates)-1]
		})
		s.waitAbsent(ns, readerRole("undeclared-later", "configmaps"))
	})

	t.Run("objects stay while a template cannot be rendered", func(t *testing.T) {
		requireKeptWhileATemplateIsBroken(s.withT(t), ns)
	})
}

// Users may write into a namespace before the operator learns of it, and before there is a template that selects it.
func TestUndeclaredObjectsArriveBeforeTheirNamespace(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	through := restartBehindProxy(t, s.testCluster)
	through.holdWatches(t, "/api/v1/namespaces")
	ns := s.createNamespace("n")
	s.createObjects(ns.Name, podQuota("undeclared"))
	s.createTemplate("root", "", authoritative(v1alpha1.AuthoritativeDelete))
	through.releaseWatches()
	s.waitAbsent(ns, podQuota("undeclared"))
}

// requireOccupiedBindingReplaced checks that the operator replaces a RoleBinding of another client that has the name of
// a declared one.
func requireOccupiedBindingReplaced(s *testScope, ns *corev1.Namespace, declared string) {
	for _, first := range []func() error{
		func() error { return s.client.Delete(s.t.Context(), clusterAdminBinding(ns.Name, occupiedName)) },
		func() error { return nil },
	} {
		require.NoError(s.t, first())
		s.eventually(func(c *assert.CollectT) {
			err := s.client.Create(s.t.Context(), clusterAdminBinding(ns.Name, occupiedName))
			if apierrors.IsAlreadyExists(err) { // the operator has created its own first
				assert.NoError(c,
					client.IgnoreNotFound(s.client.Delete(s.t.Context(), clusterAdminBinding(ns.Name, occupiedName))))
			}
			assert.NoError(c, err)
		})
		s.createObjects(ns.Name, viewerBinding("undeclared-beside"))
		s.waitPresent(ns, declared)
		s.waitAbsent(ns, viewerBinding("undeclared-beside"))
	}
}

// requireKeptWhileATemplateIsBroken checks that undeclared objects that a broken template may declare stay until it can
// be rendered. Roles that it certainly does not declare are deleted.
func requireKeptWhileATemplateIsBroken(s *testScope, ns *corev1.Namespace) {
	require.NoError(s.t, s.operator.Kill())
	s.disableVetting()
	declared := documents(configMap("c", "v"), readerRole("undeclared-$(NAMESPACE)", "configmaps"))
	broken := s.newTemplate("broken", declared, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "broken", Namespaces: template.Spec.Namespaces, Patches: []v1alpha1.Patch{{Patch: "]"}},
		}}
	})
	require.NoError(s.t, s.client.Create(s.t.Context(), broken))
	s.createObjects(ns.Name, readerRole("undeclared-kept", "configmaps"))
	s.createObjects(ns.Name, readerRole("undeclared", "configmaps"))
	require.NoError(s.t, s.startOperator(s.t.Context()))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, "TemplateNotAccepted", condition.Reason)
	})
	s.waitAbsent(ns, readerRole("undeclared", "configmaps"))
	s.waitPresent(ns, readerRole("undeclared-kept", "configmaps"))
	s.updateTemplate(broken, func(template *v1alpha1.NamespaceTemplate) { template.Spec.Overlays = nil })
	s.waitAbsent(ns, readerRole("undeclared-kept", "configmaps"))
}

// With the policy Report, undeclared objects are reported and not deleted.
func TestAuthoritativeReportKeepsOtherObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("delete", readerRole("declared", "configmaps"), authoritative(v1alpha1.AuthoritativeDelete))
	template := s.createTemplate("report", configMap("c", "v"), authoritative(v1alpha1.AuthoritativeReport))
	ns := s.createPopulatedNamespace("n")
	s.createObjects(ns.Name, readerRole("undeclared-secret-admin", "configmaps"))
	s.waitEvent(ns, corev1.EventTypeWarning, "Undeclared",
		"role.rbac.authorization.k8s.io/undeclared-secret-admin: no template declares it")
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status)
		assert.Contains(c, condition.Message, "undeclared-secret-admin")
	})
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.EqualValues(c, 1, status.Namespaces.Drifted)
	})
	s.waitPresent(ns, readerRole("undeclared-secret-admin", "configmaps"))
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) { template.Spec.AuthoritativePolicy = "" })
	s.waitAbsent(ns, readerRole("undeclared-secret-admin", "configmaps"))
}

// Objects that Kubernetes creates in every namespace are never deleted. Authors need the permission to delete the kinds
// for which their templates are authoritative, also to keep such objects.
func TestAuthoritativeTemplateKeepsDefaultObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	all := s.createTemplate("all", configMap("declared", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}, {Kind: "ServiceAccount"}}
	})
	ns := s.createPopulatedNamespace("n")
	uidsOfDefaults := func(c require.TestingT) (uids []types.UID) {
		for _, object := range []client.Object{
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}},
			newConfigMap(ns.Name, "kube-root-ca.crt"),
		} {
			require.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
			uids = append(uids, object.GetUID())
		}
		return uids
	}
	var before []types.UID
	s.eventually(func(c *assert.CollectT) { before = uidsOfDefaults(c) })
	s.createObjects(ns.Name,
		documents(configMap("undeclared", "v"), "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: undeclared}"))
	s.waitAbsent(ns, documents(configMap("undeclared", "v"),
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: undeclared}"))
	require.Equal(t, before, uidsOfDefaults(t), "Kubernetes would create deleted ones again")
	author := s.newUser("author")
	author.grant("create", "configmaps")
	s.grant(s.name("templates"), userSubject("author"),
		policyRule("create", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	theirs, err := s.newUserClient("author")
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) {
		err := theirs.Create(t.Context(),
			s.newTemplate("mine", configMap("declared", "v"), authoritative(v1alpha1.AuthoritativeReport)),
			client.DryRunAll)
		assert.ErrorContains(c, err, `user "author" may not delete resourcequotas in all namespaces`)
	})
	// A template of a tree keeps undeclared objects in all namespaces that the tree does not manage.
	bare := s.newTemplateAuthor("bare")
	expectForbidden(t, bare.Patch(t.Context(), all.DeepCopy(),
		mergePatch(`{"metadata": {"labels": {"`+v1alpha1.TreeLabel+`": "x"}}}`)), "configmaps in all namespaces")
}
