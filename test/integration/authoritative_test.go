package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// treePolicyKinds are those that a tree is authoritative for.
var treePolicyKinds = []v1alpha1.GroupKind{
	{Group: rbacv1.GroupName, Kind: "Role"}, {Group: rbacv1.GroupName, Kind: "RoleBinding"}, {Kind: "ResourceQuota"},
}

func authoritative(policy v1alpha1.AuthoritativePolicy) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Authoritative, template.Spec.AuthoritativePolicy = treePolicyKinds, policy
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	}
}

// occupiedName is the name of a binding that is declared, and that others take.
const occupiedName = "occupied-by-what-is-" + undeclaredName

// clusterAdminBinding is a binding to another role than viewer's.
func clusterAdminBinding(namespace, name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}
}

// The table "Namespace Scoped Policies" of the Git User Guide, row by row.
func TestAuthoritativeTemplateDeletesOtherObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, newTestCluster(t))
	s.createSpace("a", "", "pods", "50")
	inSpace := s.selectsSpace("a")
	template := s.createTemplate("root",
		documents(readerRole("declared", "configmaps"), viewerBinding("declared.binding"), viewerBinding(occupiedName)),
		inSpace,
		authoritative(v1alpha1.AuthoritativeDelete))
	other := s.createTemplate("other", documents(readerRole("of-another-template", "configmaps"), configMap("c", "v")),
		inSpace)
	ns := s.createNamespace("n", s.inSpace("a"))
	elsewhere := s.createNamespace("elsewhere")
	s.waitInitialized(ns)
	declared := documents(readerRole("declared", "configmaps"), viewerBinding("declared.binding"),
		viewerBinding(occupiedName), readerRole("of-another-template", "configmaps"))
	s.waitPresent(ns, declared)

	// Not declared, and there: deleted, and said. The others are not concerned, nor is what other namespaces have.
	alien := documents(readerRole("undeclared-secret-admin", "configmaps"), viewerBinding("undeclared-binding"),
		podQuota("undeclared-quota"))
	s.createObjects(elsewhere.Name, alien)
	s.createObjects(ns.Name, configMap("undeclared-but-free", "v"))
	s.createObjects(ns.Name, alien)
	s.waitAbsent(ns, alien)
	s.waitEvent(ns, corev1.EventTypeWarning, "UndeclaredDeleted",
		"role.rbac.authorization.k8s.io/undeclared-secret-admin was deleted: no template declares it, and template "+template.Name+" is authoritative for its kind")
	s.waitPresent(ns, declared)
	s.waitPresent(ns, configMap("undeclared-but-free", "v"))
	s.mustGet(ns, parseYAML(t, podQuota(v1alpha1.QuotaName))[0])

	// Declared, and otherwise: put right. Declared, and missing: created.
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

	// Declared, and in its place a binding that can't be made so: made anew. It keeps nothing else from being deleted.
	for _, first := range []func() error{
		func() error { return s.client.Delete(t.Context(), clusterAdminBinding(ns.Name, occupiedName)) },
		func() error { return nil },
	} {
		require.NoError(t, first())
		s.eventually(func(c *assert.CollectT) {
			err := s.client.Create(t.Context(), clusterAdminBinding(ns.Name, occupiedName))
			if apierrors.IsAlreadyExists(err) { // the operator was first
				assert.NoError(c,
					client.IgnoreNotFound(s.client.Delete(t.Context(), clusterAdminBinding(ns.Name, occupiedName))))
			}
			assert.NoError(c, err)
		})
		s.createObjects(ns.Name, viewerBinding("undeclared-beside"))
		s.waitPresent(ns, declared)
		s.waitAbsent(ns, viewerBinding("undeclared-beside"))
	}

	// Who forges the marks of a template keeps nothing: the label alone makes no object a template's.
	forged := parseYAML(t, readerRole("undeclared-forged", "configmaps"))[0]
	forged.SetNamespace(ns.Name)
	forged.SetLabels(map[string]string{v1alpha1.TemplateNameLabel: template.Name})
	require.NoError(t, s.client.Create(t.Context(), forged))
	s.waitDeleted(forged)

	// Added to what is declared while it is there by hand: taken over. Withdrawn: gone, as for any template.
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Templates = append(template.Spec.Templates,
			rawObjects(t, readerRole("undeclared-later", "configmaps"))...)
	})
	s.waitPresent(ns, readerRole("undeclared-later", "configmaps"))
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Templates = template.Spec.Templates[:len(template.Spec.Templates)-1]
	})
	s.waitAbsent(ns, readerRole("undeclared-later", "configmaps"))

	// What a template that can't be rendered may declare stays.
	require.NoError(t, s.operator.Kill())
	s.disableVetting()
	s.patchTemplate(other, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "broken", Namespaces: template.Spec.Namespaces, Patches: []v1alpha1.Patch{{Patch: "]"}},
		}}
	})
	s.createObjects(ns.Name, readerRole("undeclared-kept", "configmaps"))
	require.NoError(t, s.startOperator(t.Context()))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, "TemplateNotAccepted", condition.Reason)
	})
	s.waitPresent(ns, readerRole("undeclared-kept", "configmaps"))
	s.updateTemplate(other, func(template *v1alpha1.NamespaceTemplate) { template.Spec.Overlays = nil })
	s.waitAbsent(ns, readerRole("undeclared-kept", "configmaps"))
}

// Who only wants to look at what would be deleted has it reported.
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

// What Kubernetes puts into every namespace stays even if a template is authoritative for its kind, and a template
// can't have deleted what its author may not delete.
func TestAuthoritativeTemplateKeepsDefaultObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("all", configMap("declared", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}, {Kind: "ServiceAccount"}}
	})
	ns := s.createPopulatedNamespace("n")
	s.createObjects(ns.Name,
		documents(configMap("undeclared", "v"), "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: undeclared}"))
	s.waitAbsent(ns, documents(configMap("undeclared", "v"),
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: undeclared}"))
	s.eventually(func(c *assert.CollectT) {
		for _, object := range []client.Object{
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}},
			newConfigMap(ns.Name, "kube-root-ca.crt"),
		} {
			assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
		}
	})
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
}
