package integration_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

const grant = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: grant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: $(CREATOR)}
`

// Users cannot have the operator grant what they could not grant themselves, by any request.
func TestAdmissionOfTemplatesChecksAuthorPermissions(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	author := s.newUserWithRules("author",
		policyRule("*", v1alpha1.GroupVersion.Group, "namespacetemplates namespacetemplates/status"),
		policyRule("create patch delete", "", "configmaps"),
		policyRule("create patch delete", rbacv1.GroupName, "rolebindings"))
	refused := func(err error) {
		t.Helper()
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "RoleBinding")
		require.ErrorContains(t, err, "bind")
	}
	evil := s.newTemplate("evil", grant)
	refused(author.Create(t.Context(), evil.DeepCopy()))
	generated := evil.DeepCopy()
	generated.Name, generated.GenerateName = "", s.id+"-"
	refused(author.Create(t.Context(), generated))
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NamespaceTemplate",
		"metadata": map[string]any{"name": evil.Name}, "spec": evil.Spec,
	})
	require.NoError(t, err)
	apply := func(body []byte, template *v1alpha1.NamespaceTemplate) error {
		return author.Patch(t.Context(), template.DeepCopy(), client.RawPatch(types.ApplyPatchType, body),
			client.FieldOwner("author"), client.ForceOwnership)
	}
	refused(apply(body, evil))

	good := s.newTemplate("good", configMap("a", "v"))
	require.NoError(t, author.Create(t.Context(), good))
	spec, err := json.Marshal(map[string]any{"spec": map[string]any{"templates": evil.Spec.Templates}})
	require.NoError(t, err)
	refused(author.Patch(t.Context(), good.DeepCopy(), client.RawPatch(types.MergePatchType, spec)))
	changed := good.DeepCopy()
	refused(retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the operator may write its status meanwhile
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(good), changed); err != nil {
			return err
		}
		changed.Spec.Templates = evil.Spec.Templates
		return author.Update(t.Context(), changed)
	}))
	// A write of the status changes no declaration.
	require.NoError(t, author.Status().Patch(t.Context(), good.DeepCopy(), client.RawPatch(types.MergePatchType, spec)))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(good), changed))
	require.Equal(t, good.Spec, changed.Spec)

	// Users who could not have written a template of another author cannot widen or enable it, but can label it.
	theirs := s.createTemplate("theirs", grant, func(template *v1alpha1.NamespaceTemplate) {
		template.Annotations = map[string]string{
			v1alpha1.TemplateApplyAnnotation:     v1alpha1.TemplateApplyDisable,
			v1alpha1.RequirePermissionAnnotation: "true",
		}
	})
	patch := func(body string) error {
		return author.Patch(t.Context(), theirs.DeepCopy(), mergePatch(body))
	}
	refused(patch(`{"spec": {"namespaces": {"labelSelector": {"matchLabels": null}}}}`))
	refused(patch(`{"metadata": {"annotations": {"` + v1alpha1.TemplateApplyAnnotation + `": null}}}`))
	refused(patch(`{"metadata": {"annotations": {"` + v1alpha1.RequirePermissionAnnotation + `": "false"}}}`))
	require.NoError(t, patch(`{"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}`))

	// With the permission to bind the role, it is allowed.
	me := userSubject(s.name("author"))
	s.grant(s.name("bind"), me, policyRule("bind", rbacv1.GroupName, "clusterroles", "admin"))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, author.Create(t.Context(), evil.DeepCopy(), client.DryRunAll))
	})
}
