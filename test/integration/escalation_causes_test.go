package integration_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// createOnlyRules are the permissions of the create-author besides writing templates.
var createOnlyRules = []rbacv1.PolicyRule{
	policyRule("create", "", "resourcequotas configmaps serviceaccounts"),
	policyRule("create", "networking.k8s.io", "networkpolicies"),
}

// A declared object may overwrite an existing one, so authors need create and patch on each kind, like for server-side
// apply.
func TestAuthorsNeedCreateAndPatchOnDeclaredKinds(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	creates := s.newTemplateAuthor("create-author", createOnlyRules...)
	patches := s.newTemplateAuthor("patch-author", policyRule("patch", "", "configmaps resourcequotas serviceaccounts"),
		policyRule("patch", "networking.k8s.io", "networkpolicies"))
	both := s.newTemplateAuthor("both-author",
		policyRule("create patch", "", "configmaps resourcequotas serviceaccounts"),
		policyRule("create patch", "networking.k8s.io", "networkpolicies"))
	declared := map[string]string{
		"quota":     podQuota("existing"),
		"configmap": configMap("existing", "changed"),
		"account":   "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, annotations: {eks.amazonaws.com/role-arn: mine}}\n",
		"policy":    "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: existing}\nspec: {podSelector: {}}\n",
	}
	for short, object := range declared {
		template := s.newTemplate(short, object)
		s.expectDenied(creates.Create(t.Context(), template.DeepCopy()))
		s.expectDenied(patches.Create(t.Context(), template.DeepCopy()))
		require.NoError(t, both.Create(t.Context(), template.DeepCopy()), short)
	}
	// An edit needs the same permissions as a creation.
	own := s.newTemplate("own", configMap("own", "v"))
	require.NoError(t, both.Create(t.Context(), own))
	s.expectDenied(patchSpecAs(s, creates, own,
		map[string]any{"templates": rawObjects(t, documents(configMap("own", "w")))}))
	require.NoError(t,
		patchSpecAs(s, both, own, map[string]any{"templates": rawObjects(t, documents(configMap("own", "w")))}))
}

// patchSpecAs patches the spec of a template as a user.
func patchSpecAs(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate, spec map[string]any) error {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"spec": spec})
	require.NoError(s.t, err)
	return user.Patch(s.t.Context(), template.DeepCopy(), client.RawPatch("application/merge-patch+json", body))
}

// removalWrites are the writes that cause the deletion of a template's objects, by name.
var removalWrites = map[string]func(*testScope, client.Client, *v1alpha1.NamespaceTemplate) error{
	"no templates": func(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate) error {
		return patchSpecAs(s, user, template, map[string]any{"templates": []any{}})
	},
	"templates that are null": func(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate) error {
		return patchSpecAs(s, user, template, map[string]any{"templates": nil})
	},
	"another name": func(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate) error {
		return patchSpecAs(s, user, template, map[string]any{"templates": rawObjects(s.t, configMap("another", "v"))})
	},
	"an overlay that deletes": func(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate) error {
		return patchSpecAs(s, user, template, map[string]any{"overlays": []any{map[string]any{
			"name": "drop", "namespaces": map[string]any{"labelSelector": map[string]any{}},
			"patches": []any{
				map[string]any{
					"patch": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: existing}\n$patch: delete\n",
				},
			},
		}}})
	},
	"disabled": func(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate) error {
		return user.Patch(s.t.Context(), template.DeepCopy(),
			mergePatch(
				`{"metadata": {"annotations": {"`+v1alpha1.TemplateApplyAnnotation+`": "`+v1alpha1.TemplateApplyDisable+`"}}}`))
	},
	"another selector": func(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate) error {
		return patchSpecAs(s, user, template,
			map[string]any{
				"namespaces": map[string]any{
					"labelSelector": map[string]any{"matchLabels": map[string]any{"no": "namespace"}},
				},
			})
	},
	"deleted": func(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate) error {
		return user.Delete(s.t.Context(), template.DeepCopy())
	},
	"authoritative": func(s *testScope, user client.Client, template *v1alpha1.NamespaceTemplate) error {
		return patchSpecAs(s, user, template,
			map[string]any{
				"templates": []any{}, "authoritative": []any{map[string]any{"group": "", "kind": "ConfigMap"}},
			})
	},
}

// Users need the permission to delete objects of the kinds that their change of a template prunes.
func TestAuthorsNeedDeleteOnPrunedKinds(t *testing.T) {
	t.Parallel()
	for way, remove := range removalWrites {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			bare := s.newTemplateAuthor("bare-author")
			writes := s.newTemplateAuthor("write-author", policyRule("create patch", "", "configmaps"))
			deletes := s.newTemplateAuthor("delete-author", policyRule("create patch delete", "", "configmaps"), bindsEveryRole[0],
				bindsEveryRole[1]) // other tests have rules that guard deletions
			template := s.createTemplate("policies", configMap("existing", "v"), deletesObjects)
			ns := s.createPopulatedNamespace("n")
			uid := s.mustGet(ns, parseYAML(t, configMap("existing", "v"))[0]).GetUID()
			for _, user := range []client.Client{bare, writes} {
				s.expectDenied(remove(s, user, template))
			}
			require.NoError(t, (&settler{client: s.client, id: s.id}).settle(t.Context(), ns.Name))
			require.Equal(t, uid, s.mustGet(ns, parseYAML(t, configMap("existing", "v"))[0]).GetUID())

			require.NoError(t, remove(s, deletes, template))
			s.waitAbsent(ns, configMap("existing", "v"))
		})
	}
}

// Users need no permissions on objects to disable or delete a template with deletionPolicy Orphan.
func TestAuthorsNeedNoFurtherRightsWhenObjectsStay(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"disabled", "deleted"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			bare := s.newTemplateAuthor("bare-author")
			template := s.createTemplate("policies", configMap("existing", "v"))
			ns := s.createPopulatedNamespace("n")
			require.NoError(t, removalWrites[way](s, bare, template))
			require.NoError(t, (&settler{client: s.client, id: s.id}).settle(t.Context(), ns.Name))
			s.waitPresent(ns, configMap("existing", "v"))
		})
	}
}

// Authors need the permission to patch a template whose objects their template overrides.
func TestOverridingATemplateRequiresPatchOnIt(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.createTemplate("a", configMap("existing", "v"))
	ns := s.createPopulatedNamespace("n")
	config := policyRule("create patch delete", "", "configmaps")
	group := v1alpha1.GroupVersion.Group
	other := s.newUserWithRules("other-author", config, policyRule("create", group, "namespacetemplates"),
		policyRule("patch", group, "namespacetemplates", s.name("z"), s.name("token")))
	owner := s.newUserWithRules("owner-author", config, policyRule("create", group, "namespacetemplates"),
		policyRule("patch", group, "namespacetemplates", s.name("a")))
	s.expectDenied(other.Create(t.Context(), s.newTemplate("z", configMap("existing", "overridden"))))
	s.expectDenied(other.Create(t.Context(), s.newTemplate("token", configMap("$(CREATOR)", "overridden"))))
	mine := s.newTemplate("z", configMap("mine", "v"))
	require.NoError(t, other.Create(t.Context(), mine))
	s.expectDenied(patchSpecAs(s, other, mine,
		map[string]any{"templates": rawObjects(t, configMap("existing", "overridden"))}))
	require.NoError(t, (&settler{client: s.client, id: s.id}).settle(t.Context(), ns.Name))
	s.waitPresent(ns, configMap("existing", "v"))

	require.NoError(t, owner.Create(t.Context(), s.newTemplate("zz", configMap("existing", "overridden"))))
	s.waitPresent(ns, configMap("existing", "overridden"))
}
