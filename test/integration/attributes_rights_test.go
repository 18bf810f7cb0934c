package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Templates select namespaces by labels, so a Namespace's labels are protected by cluster-wide rules and bindings only.
func TestAttributesOfNamespacesNeedClusterWideBindings(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	key := s.name("tier")
	role := s.createAttributeRole("", "tiers")
	s.protectAttribute("", "tier", s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, role))
	// A rule and a binding inside the namespace do not apply to the Namespace object.
	s.protectAttribute(ns.Name, "tier",
		s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, role))
	jane := s.newUser(s.name("jane"))
	s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, role, userSubject(jane.name))
	inside := newConfigMap("", "inside")
	inside.Labels = map[string]string{key: "gold"}
	s.eventually(func(c *assert.CollectT) {
		_, err := jane.CoreV1().ConfigMaps(ns.Name).Create(t.Context(), inside, metav1.CreateOptions{})
		assert.NoError(c, err)
	})
	jane.grantUseOfAllTemplates() // so that no other policy denies changes of labels through subresources
	jane.expectAllDenied(ns, "labels", key, new("gold"), "of Namespace "+ns.Name,
		"ask for a binding to ClusterRole "+role)
	_, err := jane.createNamespace("b", map[string]string{key: "gold"}, nil)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	s.bindRole("", v1alpha1.ClusterRoleKind, role, userSubject(jane.name))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, jane.metadataWrites("labels", key, new("gold"))["merge patch"](ns.Name))
	})
	other := s.newUser(s.name("other"))
	other.grantUseOfAllTemplates()
	for _, value := range []*string{nil, new("silver"), new("")} {
		other.expectAllDenied(ns, "labels", key, value)
	}
	require.NoError(t, other.metadataWrites("labels", "other", new("label"))["update of status"](ns.Name))
}

// The author of a NamespaceTemplate needs the roles for the attributes of its objects. The operator needs none to
// populate them.
func TestAttributesOfTemplatesAreCheckedForTheirAuthors(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.protectAttribute("", "env",
		s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, s.createAttributeRole("", "setter"),
			"prod"))
	author := s.newAllVerbsClient(s.name("author"))
	labelled := func(value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {" + s.name("env") + ": " + value + "}}\n"
	}
	refused := func(template *v1alpha1.NamespaceTemplate, denial string) {
		t.Helper()
		err := author.Create(t.Context(), template)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, denial)
	}
	prod := s.newTemplate("prod", labelled("prod"))
	refused(prod,
		fmt.Sprintf(
			"may not set label %s of ConfigMap a to \"prod\" in all namespaces: ask for a binding to ClusterRole %s",
			s.name("env"), s.name("setter")))
	refused(s.newTemplate("overlay", configMap("a", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "prod", Namespaces: selectLabel("tier", "production"),
			Labels: map[string]string{s.name("env"): "prod"},
		}}
	}), "ClusterRole "+s.name("setter"))
	require.NoError(t, author.Create(t.Context(), s.newTemplate("other", configMap("b", "v"))))
	// A template applies to all namespaces, so that a binding in one namespace does not suffice.
	ns := s.createNamespace("a")
	s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, s.name("setter"), userSubject(s.name("author")))
	s.bindRole("", v1alpha1.ClusterRoleKind, s.name("setter"), userSubject(s.name("author")))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, author.Create(t.Context(), prod)) })
	refused(s.newTemplate("token", labelled("$(NAMESPACE)")), "no rule allows this value")
	s.waitPresent(ns, labelled("prod"))
	s.waitPopulated(ns)

	// Removing an attribute needs the role as well as setting it.
	other := s.newAllVerbsClient(s.name("other"))
	edit := func(change func(*v1alpha1.NamespaceTemplate)) error {
		template := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(prod), template))
		before := template.DeepCopy()
		change(template)
		return other.Patch(t.Context(), template, client.MergeFrom(before))
	}
	objects := func(texts ...string) func(*v1alpha1.NamespaceTemplate) {
		return func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Templates = s.newTemplate("x", documents(texts...)).Spec.Templates
		}
	}
	require.ErrorContains(t, edit(objects(configMap("a", "v"))),
		fmt.Sprintf("may not remove label %s of ConfigMap a, which is \"prod\"", s.name("env")))
	require.ErrorContains(t, edit(func(template *v1alpha1.NamespaceTemplate) {
		objects(configMap("a", "v"))(template)
		template.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "o", Namespaces: selectLabel("tier", "x"), Labels: map[string]string{"a": "b"},
		}}
	}), "may not remove label")
	// A template whose name comes later in the alphabet replaces the object.
	for _, objectName := range []string{"a", "$(NAMESPACE)"} {
		err := other.Create(t.Context(), s.newTemplate("replaces", configMap(objectName, "v")))
		require.ErrorContains(t, err, fmt.Sprintf("may not remove label %s of ConfigMap a, which is \"prod\"", s.name("env")))
	}
	require.NoError(t, other.Create(t.Context(), s.newTemplate("is-replaced", configMap("a", "v")), client.DryRunAll))
	rule := &v1alpha1.ClusterProtectedAttribute{ObjectMeta: metav1.ObjectMeta{Name: s.name("env")}}
	require.NoError(t, s.client.Patch(t.Context(), rule, mergePatch(`{"guardDeletion": true}`)))
	s.waitEnforced(rule)
	// Objects that the template no longer declares are deleted in selected namespaces under every deletionPolicy.
	require.ErrorContains(t, edit(objects(configMap("b", "v"))), "may not remove label")
	// An authoritative template deletes the objects of other users, too.
	deletes := s.newTemplateAuthor("deletes", policyRule("create patch delete", "", "configmaps"))
	authoritative := func(policy v1alpha1.AuthoritativePolicy) *v1alpha1.NamespaceTemplate {
		return s.newTemplate("authoritative", configMap("c", "v"), func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
			template.Spec.AuthoritativePolicy = policy
		})
	}
	expectForbidden(t, deletes.Create(t.Context(), authoritative(v1alpha1.AuthoritativeDelete)), fmt.Sprintf(
		"may not remove label %s of undeclared objects (authoritative), which is \"prod\"", s.name("env")))
	require.NoError(t, deletes.Create(t.Context(), authoritative(v1alpha1.AuthoritativeReport), client.DryRunAll))
	writes := policyRule("create patch delete", "", "configmaps")
	binds := s.newTemplateAuthor("binds", writes, bindsEveryRole[0], bindsEveryRole[1])
	require.NoError(t, binds.Create(t.Context(), authoritative(""), client.DryRunAll))
	for i, rule := range bindsEveryRole {
		half := s.newTemplateAuthor(fmt.Sprint("binds-", i), writes, rule)
		expectForbidden(t, half.Create(t.Context(), authoritative("")), s.name("env"))
	}
	s.bindRole("", v1alpha1.ClusterRoleKind, s.name("setter"), userSubject(s.name("deletes")))
	s.eventually(func(c *assert.CollectT) { // other tests have rules that guard deletions, too
		if err := deletes.Create(t.Context(), authoritative(""), client.DryRunAll); err != nil {
			assert.NotContains(c, err.Error(), s.name("env"))
		}
	})
}

// bindsEveryRole are the rights with which a user could hold every role.
var bindsEveryRole = [...]rbacv1.PolicyRule{
	policyRule("bind", rbacv1.GroupName, "clusterroles"), policyRule("create", rbacv1.GroupName, "clusterrolebindings"),
}

// A rule is not undermined by another, and says what is odd about its role.
func TestAttributeRulesCannotWeakenOthers(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a").Name
	s.grant(s.name("jane"), userSubject(s.name("jane")), rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group, ""}, Resources: []string{"protectedattributes", "namespaces"},
		Verbs: []string{"*"},
	})
	jane, warnings := s.newWarnedUser(s.name("jane"))
	rule := func(short string, rule v1alpha1.AttributeRule) *v1alpha1.ProtectedAttribute {
		return &v1alpha1.ProtectedAttribute{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: s.name(short)}, AttributeRule: rule,
		}
	}
	own := rule("own", s.attributeRule(v1alpha1.LabelAttribute, "own", v1alpha1.RoleKind, s.name("setters")))
	edit := func(change func()) error {
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(own), own))
		before := own.DeepCopy()
		change()
		return jane.Patch(t.Context(), own, client.MergeFrom(before))
	}
	setters := s.createAttributeRole(ns, "real-setters")

	t.Run("the author is warned about a role that does not exist or has no rules", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, jane.Create(t.Context(), own))
		require.Contains(t, strings.Join(warnings.drain(), "\n"), "Role "+ns+"/"+s.name("setters")+" does not exist")
		s.waitEnforced(own)
		require.NoError(t, edit(func() { own.Labels = map[string]string{"a": "b"} }))
		require.Empty(t, warnings.drain(), "the rule did not change")
		require.NoError(t,
			s.client.Create(t.Context(),
				&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: s.name("setters")}}))
		require.NoError(t, edit(func() { own.GuardDeletion = true }))
		require.Contains(t, strings.Join(warnings.drain(), "\n"), "has no rules")
		require.NoError(t, edit(func() { own.RoleRef.Name = setters }))
		require.Empty(t, warnings.drain())
	})

	t.Run("a rule in a namespace cannot weaken a cluster-wide rule", func(t *testing.T) {
		s := s.withT(t)
		s.protectAttribute("", "env",
			s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind,
				s.createAttributeRole("", "deployer"),
				"prod"))
		opening := rule("opening", s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.RoleKind, setters))
		err := jane.Create(t.Context(), opening)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "needs the verb create on clusterprotectedattributes.policy.nstpl.dev")
		require.True(t, apierrors.IsForbidden(edit(func() {
			own.AttributeName = s.name("env")
		})), "an update of the name is denied too")
		require.NoError(t, s.client.Create(t.Context(), opening), "administrators may create it")
	})

	t.Run("the author of a cluster-wide rule is warned about earlier rules in namespaces", func(t *testing.T) {
		s := s.withT(t)
		first := rule("first", s.attributeRule(v1alpha1.LabelAttribute, "late", v1alpha1.RoleKind, setters))
		require.NoError(t, jane.Create(t.Context(), first))
		s.waitEnforced(first)
		admin, adminWarnings := s.newWarnedUser("admin-of-rules", "system:masters")
		late := &v1alpha1.ClusterProtectedAttribute{
			ObjectMeta: metav1.ObjectMeta{Name: s.name("late")},
			AttributeRule: s.attributeRule(v1alpha1.LabelAttribute, "late", v1alpha1.ClusterRoleKind,
				s.name("deployer")),
		}
		require.NoError(t, admin.Create(t.Context(), late))
		require.Contains(t, strings.Join(adminWarnings.drain(), "\n"),
			fmt.Sprintf("ProtectedAttribute %s/%s remains in force", ns, s.name("first")))
	})
}

// The webhooks contain the names of all rules. A namespace has a share of them, so that its rules cannot keep those of
// the cluster from being enforced.
func TestRulesOfANamespaceAreLimited(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	user := s.newTemplateAuthor("owner", policyRule("*", v1alpha1.GroupVersion.Group, "protectedattributes"))
	rule := func(i int) *v1alpha1.ProtectedAttribute {
		// A label has a domain and a name.
		name := fmt.Sprintf("%s.%s.%s/n%d", strings.Repeat("a", 63), strings.Repeat("b", 63), strings.Repeat("c", 63), i)
		return &v1alpha1.ProtectedAttribute{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: fmt.Sprintf("r%d", i)},
			AttributeRule: v1alpha1.AttributeRule{
				AttributeKind: v1alpha1.LabelAttribute, AttributeName: name,
				RoleRef: v1alpha1.RoleReference{Kind: v1alpha1.ClusterRoleKind, Name: "admin"},
			},
		}
	}
	const fit = 8 << 10 / 194
	for i := range fit {
		require.NoError(t, user.Create(t.Context(), rule(i)))
	}
	s.eventually(func(c *assert.CollectT) { // until the operator's cache has them
		assert.ErrorContains(c, user.Create(t.Context(), rule(fit), client.DryRunAll),
			"the names that ProtectedAttributes of namespace "+ns.Name+" protect have more than 8 KiB")
	})
	require.NoError(t, s.client.Create(t.Context(), rule(fit)))
	require.NoError(t, s.client.DeleteAllOf(t.Context(), &v1alpha1.ProtectedAttribute{}, client.InNamespace(ns.Name)))
}
