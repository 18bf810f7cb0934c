package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/test/marks"
)

const (
	protects   = `{"metadata": {"annotations": {"policy.nstpl.dev/deletion-protection": "true"}}}`
	unprotects = `{"metadata": {"annotations": {"policy.nstpl.dev/deletion-protection": null}}}`
)

// protected returns a YAML object with the annotation that protects it from deletion.
func protected(t *testing.T, object string) string {
	t.Helper()
	parsed := parseYAML(t, object)[0]
	parsed.SetAnnotations(map[string]string{v1alpha1.DeletionProtectionAnnotation: "true"})
	data, err := json.Marshal(parsed.Object)
	require.NoError(t, err)
	return string(data)
}

// waitStillProtected waits until the condition of a namespace says that its ConfigMap settings is kept because it is protected.
func waitStillProtected(s *testScope, ns *corev1.Namespace) {
	s.t.Helper()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "configmap/settings: is kept, because it is protected from deletion (")
	})
}

// No user deletes a protected namespace, and only users with the verb unprotect change the annotation, in whatever way.
func TestProtectedNamespaceIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	user := s.newUser("olga")
	key, yes := v1alpha1.DeletionProtectionAnnotation, "true"
	ns, err := user.createNamespace("a", nil, map[string]string{key: yes})
	require.NoError(t, err)
	for _, options := range []metav1.DeleteOptions{
		{}, {DryRun: []string{metav1.DryRunAll}}, {GracePeriodSeconds: new(int64(0))},
	} {
		err := user.CoreV1().Namespaces().Delete(t.Context(), ns.Name, options)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "(nstpl:deletion-protected)")
	}
	expectForbidden(t, s.client.Delete(t.Context(), ns), "namespace "+ns.Name+" is protected from deletion")

	no := "false"
	for _, value := range []*string{nil, &no} {
		user.expectAllDenied(ns, "annotations", key, value, "may not change the annotation "+key,
			"ask for the verb unprotect on namespaces (nstpl:deletion-protection)")
	}
	s.patchNamespace(ns, `{"metadata": {"finalizers": ["example.com/a"]}}`)
	s.patchNamespace(ns, `{"metadata": {"finalizers": null}}`)
	expectForbidden(t, s.client.Delete(t.Context(), ns), "is protected from deletion")

	// A manager that applied the annotation cannot give it up either.
	apply := func(annotations string) error {
		_, err := user.CoreV1().Namespaces().Patch(t.Context(), s.name("applied"), types.ApplyPatchType,
			[]byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+s.name("applied")+`", "annotations": {`+
				annotations+`}}}`),
			metav1.PatchOptions{FieldManager: "gitops"})
		return err
	}
	require.NoError(t, apply(fmt.Sprintf("%q: %q", key, yes)))
	expectForbidden(t, apply(""), "(nstpl:deletion-protection)")

	// The annotation has two values. At creation and later, others are denied, since they would protect nothing.
	_, err = user.createNamespace("b", nil, map[string]string{key: "True"})
	require.ErrorContains(t, err, `must be "true" or "false", not "True" (nstpl:deletion-protection)`)
	other, err := user.createNamespace("b", nil, nil)
	require.NoError(t, err)
	for name, write := range user.metadataWrites("annotations", key, new("yes")) {
		require.ErrorContains(t, write(other.Name), `must be "true" or "false", not "yes"`, name)
	}
	// A user cannot keep an existing namespace that others are about to delete.
	user.expectAllDenied(other, "annotations", key, &yes, "(nstpl:deletion-protection)")
	require.NoError(t, user.CoreV1().Namespaces().Delete(t.Context(), other.Name, metav1.DeleteOptions{}))

	// With the verb on one namespace, the user takes the protection off and deletes it.
	user.grant(v1alpha1.VerbUnprotect, "namespaces", ns.Name)
	s.eventually(func(c *assert.CollectT) {
		_, err := user.CoreV1().Namespaces().Patch(t.Context(), ns.Name, types.MergePatchType, []byte(unprotects),
			metav1.PatchOptions{})
		assert.NoError(c, err)
	})
	require.NoError(t, user.CoreV1().Namespaces().Delete(t.Context(), ns.Name, metav1.DeleteOptions{}))
	s.waitDeleted(ns)
	expectForbidden(t, apply(""), "(nstpl:deletion-protection)")
}

// A populated object with the annotation is not deleted, and users without the verb unprotect cannot remove the
// annotation or what records it. An object in a namespace that is being deleted goes.
func TestProtectedObjectIsNotDeleted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
	template := s.createTemplate("defaults", documents(protected(t, configMap("settings", "v")), configMap("plain", "v")))
	ns := s.createPopulatedNamespace("a")
	user := s.newTemplateAuthor("olga", policyRule("get list update patch delete deletecollection", "", "configmaps"))
	object := s.mustGet(ns, parseYAML(t, settings)[0])
	s.eventually(func(c *assert.CollectT) { // until the API server knows the user's permissions
		assert.NoError(c, user.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopy()))
		assert.NoError(c, s.patchLike(user, ns, settings, `{"data": {"more": "v"}}`))
	})
	for _, as := range []client.Client{user, s.client} {
		expectForbidden(t, as.Delete(t.Context(), object.DeepCopy()), "configmaps/settings in namespace "+ns.Name+
			" is protected from deletion")
		expectForbidden(t, as.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(ns.Name)),
			"(nstpl:deletion-protected)")
	}
	require.Equal(t, object.GetUID(), s.mustGet(ns, object).GetUID())

	for _, patch := range []string{
		unprotects, `{"metadata": {"annotations": null}}`,
		`{"metadata": {"annotations": {"policy.nstpl.dev/deletion-protection": "false"}}}`,
		`{"metadata": {"labels": {"policy/namespace-template-name": null}}}`,
		`{"metadata": {"managedFields": [{}]}}`,
	} {
		expectForbidden(t, s.patchLike(user, ns, settings, patch), "(nstpl:deletion-protection)")
	}
	require.ErrorContains(t, s.patchLike(user, ns, settings,
		`{"metadata": {"annotations": {"policy.nstpl.dev/deletion-protection": "1"}}}`), `must be "true" or "false"`)
	bare := s.mustGet(ns, object)
	bare.SetAnnotations(nil)
	expectForbidden(t, user.Update(t.Context(), bare), "(nstpl:deletion-protection)")
	disowned := s.mustGet(ns, object)
	entries := disowned.GetManagedFields()
	for i := range entries {
		if populate.IsOwnEntry(&entries[i]) {
			entries[i].FieldsV1 = metav1.NewFieldsV1(`{"f:data":{"f:key":{}}}`)
		}
	}
	disowned.SetManagedFields(entries)
	expectForbidden(t, user.Update(t.Context(), disowned), "(nstpl:deletion-protection)")

	// With the verb, the annotation can be removed. The operator restores what the template declares.
	s.grant(s.name("unprotect"), userSubject(s.name("olga")), policyRule("unprotect", "", "configmaps"))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, s.patchLike(user, ns, settings, unprotects)) })
	s.waitPresent(ns, protected(t, configMap("settings", "v")))

	require.NoError(t, s.client.Delete(t.Context(), ns))
	s.waitDeleted(ns)
	s.delete(template)
}

// The protection holds while the operator is down.
func TestProtectionHoldsWithoutTheOperator(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.createTemplate("defaults", protected(t, configMap("settings", "v")))
	ns := s.createPopulatedNamespace("a", func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{v1alpha1.DeletionProtectionAnnotation: "true"}
	})
	require.NoError(t, s.operator.Kill())
	settings := s.mustGet(ns, parseYAML(t, configMap("settings", "v"))[0])
	expectForbidden(t, s.client.Delete(t.Context(), settings), "(nstpl:deletion-protected)")
	expectForbidden(t, s.client.Delete(t.Context(), ns), "(nstpl:deletion-protected)")
}

// A user who protects a RoleBinding cannot keep it when the template takes it away.
func TestUserCannotKeepARoleBindingByProtectingIt(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	binding := bindingToClusterRole("editors", "edit", "team")
	template := s.createTemplate("defaults", documents(binding, configMap("settings", "v")))
	ns := s.createPopulatedNamespace("a")
	s.grant(s.name("bindings"), userSubject(s.name("olga")), policyRule("get patch delete", rbacv1.GroupName, "rolebindings"))
	s.grant(s.name("bind"), userSubject(s.name("olga")), policyRule("bind", rbacv1.GroupName, "clusterroles", "edit"))
	user, err := s.newUserClient(s.name("olga"))
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, s.patchLike(user, ns, binding, protects)) })
	object := s.mustGet(ns, parseYAML(t, binding)[0])
	expectForbidden(t, user.Delete(t.Context(), object), "(nstpl:deletion-protected)")
	s.updateTemplate(template, withObjects(t, configMap("settings", "v")))
	s.waitAbsent(ns, binding)
	s.waitPopulated(ns)
}

// An object that its template protects stays when the template drops it, until a person takes the protection off. The
// condition says so, also when no template selects the namespace any more.
func TestProtectedObjectIsKeptUntilItIsUnprotected(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	settings := protected(t, configMap("settings", "v"))
	template := s.createTemplate("defaults", documents(settings, configMap("plain", "v")), deletesObjects)
	dropped, moved := s.createPopulatedNamespace("dropped"), s.createPopulatedNamespace("moved")
	s.patchNamespace(moved, fmt.Sprintf(`{"metadata": {"labels": {%q: "nowhere"}}}`, testLabel))
	s.waitAbsent(moved, configMap("plain", ""))
	waitStillProtected(s, moved)
	s.updateTemplate(template, withObjects(t, configMap("plain", "v")))
	waitStillProtected(s, dropped)
	s.waitPopulated(dropped)
	for _, ns := range []*corev1.Namespace{dropped, moved} {
		s.waitPresent(ns, settings)
		require.NoError(t, s.patchLike(s.client, ns, settings, unprotects))
		s.waitAbsent(ns, settings)
	}
	s.waitCondition(moved, func(c *assert.CollectT, condition corev1.NamespaceCondition) { assert.Empty(c, condition) })
}

// A template with deletionPolicy Delete remains until its protected objects may be deleted, and says why.
func TestProtectedObjectsDelayTheDeletionOfTheirTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	settings := protected(t, configMap("settings", "v"))
	template := s.createTemplate("defaults", settings, deletesObjects)
	ns := s.createPopulatedNamespace("a")
	s.delete(template)
	waitStillProtected(s, ns)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		ready := templateCondition(status, v1alpha1.ConditionReady)
		assert.Equal(c, populate.FindingProtected, ready.Reason)
		assert.Contains(c, ready.Message, "configmap/settings in namespace "+ns.Name)
	})
	require.NoError(t, s.patchLike(s.client, ns, settings, unprotects))
	s.waitAbsent(ns, settings)
	s.waitDeleted(template)
}

// A declaration without the annotation does not take the protection off existing objects: not if the author drops the
// annotation, not if the author drops the object and declares it again, and not if another template declares the
// object. The value "false" does, and so its author needs the verb unprotect.
func TestAuthorsNeedUnprotectToRemoveAProtection(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	settings := protected(t, configMap("settings", "v"))
	template := s.createTemplate("defaults", settings, deletesObjects)
	ns := s.createPopulatedNamespace("a")
	author := s.newTemplateAuthor("author", policyRule("create patch delete", "", "configmaps"))
	declares := func(objects ...string) error {
		changed := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), changed))
		before := changed.DeepCopy()
		withObjects(t, documents(objects...))(changed)
		return author.Patch(t.Context(), changed, client.MergeFrom(before))
	}
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, author.Create(t.Context(), s.newTemplate("probe", settings), client.DryRunAll))
	})
	const denial = "may not unprotect configmaps in all namespaces"
	unprotected := strings.Replace(protected(t, configMap("settings", "w")), `"true"`, `"false"`, 1)
	expectForbidden(t, declares(unprotected), denial)
	expectForbidden(t, author.Create(t.Context(), s.newTemplate("z", unprotected), client.DryRunAll), denial)
	expectForbidden(t, author.Create(t.Context(), s.newTemplate("o", settings, func(o *v1alpha1.NamespaceTemplate) {
		o.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "open", Namespaces: selectLabel("open", "true"),
			Annotations: map[string]string{v1alpha1.DeletionProtectionAnnotation: "false"},
		}}
	}), client.DryRunAll), denial)

	require.NoError(t, declares(configMap("settings", "dropped")))
	s.waitPresent(ns, protected(t, configMap("settings", "dropped")))
	require.NoError(t, declares(configMap("marker", "v")))
	waitStillProtected(s, ns)
	require.NoError(t, declares(configMap("settings", "again")))
	s.waitPresent(ns, protected(t, configMap("settings", "again")))
	// The later template overrides the object. When it no longer selects the namespace, the other one has it again.
	later := s.createTemplate("later", configMap("settings", "later"))
	s.waitPresent(ns, protected(t, configMap("settings", "later")))
	s.delete(later)
	s.waitPresent(ns, protected(t, configMap("settings", "again")))
	object := s.mustGet(ns, parseYAML(t, settings)[0])
	expectForbidden(t, s.client.Delete(t.Context(), object), "(nstpl:deletion-protected)")

	s.grant(s.name("unprotect"), userSubject(s.name("author")), policyRule("unprotect", "", "configmaps"))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, declares(unprotected)) })
	s.waitPresent(ns, unprotected)
	s.updateTemplate(template, withObjects(t, configMap("marker", "v")))
	s.waitAbsent(ns, settings)
}

// A user who labels a namespace so that the template that protects an object no longer selects it does not take the
// protection off, although another template declares the object without the annotation.
func TestProtectionStaysWhenItsTemplateNoLongerSelects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("a", configMap("settings", "plain"))
	s.createTemplate("b", protected(t, configMap("settings", "production")),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selectLabel(s.name("tier"), "production")
		})
	ns := s.createPopulatedNamespace("a", withLabel(s.name("tier"), "production"))
	s.waitPresent(ns, protected(t, configMap("settings", "production")))
	s.patchLabel(ns, s.name("tier"), "")
	s.waitPresent(ns, protected(t, configMap("settings", "plain")))
	settings := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])
	expectForbidden(t, s.client.Delete(t.Context(), settings), "(nstpl:deletion-protected)")
	// A user with the verb takes it off, and it does not come back.
	require.NoError(t, s.patchLike(s.client, ns, configMap("settings", ""), unprotects))
	s.eventually(func(c *assert.CollectT) {
		assert.NotContains(c, s.mustGet(ns, settings).GetAnnotations(), v1alpha1.DeletionProtectionAnnotation)
		assert.NoError(c, s.client.Delete(t.Context(), settings.DeepCopy(), client.DryRunAll))
	})
	s.waitPopulated(ns)
}

// Templates may declare the annotation only with the values true and false.
func TestTemplatesDeclareValidProtections(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	for _, value := range []string{"yes", "$(NAMESPACE)"} {
		object := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {%s: %q}}\n",
			v1alpha1.DeletionProtectionAnnotation, value)
		require.ErrorContains(t, s.client.Create(t.Context(), s.newTemplate("a", object)), `is neither "true" nor "false"`)
	}
}

// Controllers copy labels and annotations of a template of pods, which any user may write. Such pods are not those of
// a NamespaceTemplate: they can be deleted, which preemption and evictions need.
func TestControllersCopyNoProtection(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	labels := map[string]string{"app": "web", v1alpha1.TemplateNameLabel: "x"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: labels, Annotations: map[string]string{v1alpha1.DeletionProtectionAnnotation: "true"},
				},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
			},
		},
	}
	require.NoError(t, s.client.Create(t.Context(), deployment))
	pods := &corev1.PodList{}
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.List(t.Context(), pods, client.InNamespace(ns.Name), client.MatchingLabels(labels)))
		assert.Len(c, pods.Items, 1)
	})
	require.Equal(t, "true", pods.Items[0].Annotations[v1alpha1.DeletionProtectionAnnotation])
	require.NoError(t, s.client.Delete(t.Context(), &pods.Items[0]))
}
