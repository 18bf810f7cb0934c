package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// limitBindings creates a quota that allows no more RoleBindings than the two of the template.
func (s *testScope) limitBindings(ns *corev1.Namespace) {
	s.t.Helper()
	s.createObjects(ns.Name, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: few}, "+
		"spec: {hard: {count/rolebindings.rbac.authorization.k8s.io: 2}}}")
	more := parseYAML(s.t, grantTo("more", "a"))[0]
	more.SetNamespace(ns.Name)
	s.eventually(func(c *assert.CollectT) { // until the quota is counted
		assert.ErrorContains(c, s.client.Create(s.t.Context(), more.DeepCopy(), client.DryRunAll), "exceeded quota")
	})
}

// fillQuota has a user create a RoleBinding in place of a populated one, where a quota allows no further one.
func (s *testScope) fillQuota(ns *corev1.Namespace, user client.Client, declared, spare string) {
	s.t.Helper()
	s.limitBindings(ns)
	theirs := parseYAML(s.t, grantTo(spare, s.name("owner")))[0]
	theirs.SetNamespace(ns.Name)
	populated := parseYAML(s.t, grantTo(declared, "a"))[0]
	populated.SetNamespace(ns.Name)
	s.eventually(func(c *assert.CollectT) {
		require.NoError(s.t, client.IgnoreNotFound(user.Delete(s.t.Context(), populated.DeepCopy())))
		err := user.Create(s.t.Context(), theirs.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			assert.NoError(c, err)
		}
	})
}

// A quota on the number of RoleBindings keeps the operator from creating one of them again if a user has taken its
// place. The others are revoked all the same.
func TestAFullQuotaKeepsNoRevokedGrant(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	name := s.name("owner")
	template := s.createTemplate("grants", documents(grantTo("owner", name), grantTo("readers", "a"), configValue("one")))
	ns := s.createPopulatedNamespace("a")
	owner, err := s.newUserClient(name)
	require.NoError(t, err)
	s.fillQuota(ns, owner, "readers", "spare")
	s.waitNotPopulated(ns, "exceeded quota")
	s.updateTemplate(template, withObjects(t, documents(grantTo("readers", "a"), configValue("two"))))
	s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.subjectsOf(ns, "owner")) })
}

// Where a template is authoritative for RoleBindings, a full quota keeps no undeclared one.
func TestAFullQuotaKeepsNoUndeclaredGrant(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	name := s.name("owner")
	s.createTemplate("grants", documents(grantTo("owner", name), grantTo("readers", "a")),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Authoritative = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
		})
	ns := s.createPopulatedNamespace("a")
	owner, err := s.newUserClient(name)
	require.NoError(t, err)
	s.fillQuota(ns, owner, "readers", undeclaredName)
	s.eventually(func(c *assert.CollectT) {
		assert.Empty(c, s.subjectsOf(ns, undeclaredName))
		assert.Equal(c, []string{"a"}, s.subjectsOf(ns, "readers"))
	})
}

// A RoleBinding whose roleRef changes is deleted, although a full quota may keep the new one from being created. diff
// says so before.
func TestAFullQuotaKeepsNoFormerRoleRef(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	name := s.name("owner")
	template := s.createTemplate("grants", documents(grantTo("owner", name), grantTo("readers", "a")))
	ns := s.createPopulatedNamespace("a")
	s.limitBindings(ns)
	viewing := strings.Replace(grantTo("owner", name), "name: admin}", "name: view}", 1)
	update := withObjects(t, documents(viewing, grantTo("readers", "a")))
	changed := template.DeepCopy()
	changed.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate"}
	update(changed)
	data, err := yaml.Marshal(changed)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "template.yaml")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	out, _ := runPlugin(s, "diff", ns.Name, "-f", file, "-o", "json")
	require.Contains(t, out, `"action": "Replace"`)

	s.updateTemplate(template, update)
	s.waitPresent(ns, viewing)
	s.waitPopulated(ns)
}
