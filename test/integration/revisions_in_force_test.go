package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/test/marks"
)

// selectsClass has a template select the namespaces of the scope with a label.
func (s *testScope) selectsClass(key, value string) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{testLabel: s.id, key: value},
		}}
	}
}

func pausesRollout(template *v1alpha1.NamespaceTemplate) {
	template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
}

func resumesRollout(template *v1alpha1.NamespaceTemplate) { template.Spec.Rollout = nil }

// A namespace gets an earlier revision while a rollout is paused. So its selector requires permission, too, also in
// namespaces that the stored selector matched before.
func TestEarlierRevisionsOfAGuardedTemplateRequireUse(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	tenant := s.newUser(s.name("tenant"))
	template := s.createTemplate("guarded", configMap("prize", "v"), requiresUse, s.selectsClass("class", "gold"))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.createPopulatedNamespace("has-it", withLabel("class", "gold"))
	ns := s.createNamespace("tenant", withLabel("team", "t"))
	gold := `{"metadata": {"labels": {"class": "gold"}}}`
	tries := 0
	attack := func() {
		t.Helper()
		tries++
		require.ErrorContains(t, tenant.patchesNamespace(ns.Name, gold), "may not use NamespaceTemplate "+template.Name)
		_, err := tenant.createNamespace(fmt.Sprint("new-", tries), map[string]string{"team": "t", "class": "gold"}, nil)
		require.ErrorContains(t, err, "may not use NamespaceTemplate "+template.Name)
	}
	attack()
	s.patchTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		pausesRollout(template)
		s.selectsClass("team", "t")(template)
		withObjects(t, configMap("wider", "v"))(template)
	})
	for range 20 { // the operator has not seen the change yet
		attack()
	}
	s.waitRollout(template, v1alpha1.RolloutPaused)
	attack()
	require.NoError(t, tenant.patchesNamespace(ns.Name, `{"metadata": {"labels": {"note": "x"}}}`),
		"labels by which no revision selects")

	// A second change supersedes the first one, which is in force nowhere. The first revision still is.
	s.updateTemplate(template, withObjects(t, configMap("other", "v")))
	s.waitRollout(template, v1alpha1.RolloutPaused)
	attack()
	s.waitAbsent(ns, configMap("prize", ""))

	s.updateTemplate(template, resumesRollout)
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.eventually(func(c *assert.CollectT) { // no revision selects by the label any more
		assert.NoError(c, tenant.patchesNamespace(ns.Name, gold))
	})
	s.waitAbsent(ns, configMap("prize", ""))
}

// A new namespace waits for the earlier revision that it gets, although the newest one does not select it.
func TestNewNamespacesWaitForEarlierRevisions(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("a", fixedValue("one"), s.selectsClass("class", "gold"))
	s.createPopulatedNamespace("before", withLabel("class", "gold"), withLabel("env", "prod"))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchLabels["env"] = "prod"
		withObjects(t, fixedValue("two"))(template)
	})
	s.waitRollout(template, v1alpha1.RolloutStopped)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
	ns := createNamespaceAfter(s, *template.Status.Revisions[0].StopTime, withLabel("class", "gold"))
	require.Equal(t, []string{v1alpha1.TemplateInitializer}, initialize.Pending(ns))
	s.waitInitialized(ns)
	s.mustGet(ns, parseYAML(t, fixedValue("one"))[0])
}

// A template that begins to require permission guards its earlier revisions from then on.
func TestATemplateThatBeginsToRequirePermissionGuardsItsEarlierRevisions(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	tenant := s.newUser(s.name("tenant"))
	template := s.createTemplate("a", configMap("prize", "v"), s.selectsClass("class", "gold"))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.createPopulatedNamespace("has-it", withLabel("class", "gold"))
	ns := s.createNamespace("tenant", withLabel("team", "t"))
	s.patchTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		pausesRollout(template)
		requiresUse(template)
		s.selectsClass("team", "t")(template)
	})
	require.ErrorContains(t, tenant.patchesNamespace(ns.Name, `{"metadata": {"labels": {"class": "gold"}}}`),
		"may not use NamespaceTemplate "+template.Name)
}

// Who chooses the overlay of a template that requires permission chooses what the namespace gets.
func TestOverlaysOfAGuardedTemplateRequireUse(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	tenant, permitted := s.newUser(s.name("tenant")), s.newUser(s.name("permitted"))
	ns := s.createNamespace("a", withLabel("class", "gold"))
	inside := s.createNamespace("b", withLabel("class", "gold"), withLabel("size", "small"), withLabel("kind", "x"))
	template := s.createTemplate("guarded", configMap("prize", "v"), requiresUse, s.selectsClass("class", "gold"),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Overlays = []v1alpha1.Overlay{{
				Name: "small",
				Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"size": "small", "kind": "x"},
				}},
				Labels: map[string]string{"size": "small"},
			}}
		})
	permitted.grant("use", v1alpha1.NamespaceTemplates.Resource, template.Name)
	denied := "may not use NamespaceTemplate " + template.Name
	enter := `{"metadata": {"labels": {"size": "small", "kind": "x"}}}`
	leave := `{"metadata": {"labels": {"kind": null}}}`
	require.ErrorContains(t, tenant.patchesNamespace(ns.Name, enter), denied)
	require.ErrorContains(t, tenant.patchesNamespace(inside.Name, leave), denied)
	require.NoError(t, tenant.patchesNamespace(ns.Name, `{"metadata": {"labels": {"note": "x"}}}`))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, permitted.patchesNamespace(ns.Name, enter))
		assert.NoError(c, permitted.patchesNamespace(inside.Name, leave))
	})
	require.NoError(t, tenant.patchesNamespace(ns.Name, `{"metadata": {"labels": {"class": null}}}`),
		"a namespace may leave the template")
}

// An object that only an earlier revision declares is in namespaces, so overriding it takes the right to change the
// template that declares it.
func TestObjectsOfEarlierRevisionsAreNotOverridden(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	author := s.newUserWithRules("author", policyRule("create patch delete", "", "configmaps"),
		policyRule("create", v1alpha1.GroupVersion.Group, "namespacetemplates")) // and no patch
	template := s.createTemplate("b", configValue("admin"))
	ns := s.createPopulatedNamespace("a")
	s.waitRollout(template, v1alpha1.RolloutComplete)
	override := s.newTemplate("z", configValue("author"))
	create := func() error { return author.Create(t.Context(), override.DeepCopy(), client.DryRunAll) }
	require.ErrorContains(t, create(), "it overrides ConfigMap config of template "+template.Name)
	s.patchTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		pausesRollout(template)
		withObjects(t, configMap("other", "v"))(template)
	})
	require.ErrorContains(t, create(), "it overrides ConfigMap config of template "+template.Name)
	s.waitRollout(template, v1alpha1.RolloutPaused)
	require.ErrorContains(t, create(), "it overrides ConfigMap config of template "+template.Name)
	require.Equal(t, map[string]int{"admin": 1}, configValues(s, []*corev1.Namespace{ns}))

	s.updateTemplate(template, resumesRollout)
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create(), "no revision in force declares it") })
}

// A label that only an earlier revision sets is not set any more if a template selects by it.
func TestLabelsOfEarlierRevisionsAreNotSwitchedOff(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	author := s.newTemplateAuthor("author")
	key := "set-" + s.id
	template := s.createTemplate("a", configValue("one"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{key: "x"}}
	})
	s.createPopulatedNamespace("a")
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		pausesRollout(template)
		template.Spec.NamespaceMetadata = nil
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	selecting := s.newTemplate("b", "", s.selectsClass(key, "x"))
	require.ErrorContains(t, author.Create(t.Context(), selecting), "which template "+template.Name+" sets")
}

// A template that requires permission restricts other users, so it takes the right to use all templates.
func TestRequiringPermissionNeedsUseOfAllTemplates(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	author := s.newTemplateAuthor("author", policyRule("create patch delete", "", "configmaps"))
	const needs = "needs the verb use on all namespacetemplates"
	guarded := s.newTemplate("guarded", configValue("one"), requiresUse)
	require.ErrorContains(t, author.Create(t.Context(), guarded), needs)
	annotate := `{"metadata": {"annotations": {"` + v1alpha1.RequirePermissionAnnotation + `": "true"}}}`
	theirs := s.createTemplate("theirs", configValue("one"), s.selectsClass("class", "gold"))
	require.ErrorContains(t, author.Patch(t.Context(), theirs.DeepCopy(), mergePatch(annotate)), needs)

	s.updateTemplate(theirs, requiresUse) // by an administrator
	require.ErrorContains(t, author.Patch(t.Context(), theirs.DeepCopy(),
		mergePatch(`{"spec": {"namespaces": {"labelSelector": {"matchLabels": {"class": null}}}}}`)), needs)
	require.NoError(t, author.Patch(t.Context(), theirs.DeepCopy(),
		mergePatch(`{"spec": {"namespaces": {"labelSelector": {"matchLabels": {"more": "x"}}}}}`)), "a narrower selector")

	// The author may not fill the record of selectors by narrower ones either.
	var values []string
	for i := range 100 {
		values = append(values, fmt.Sprintf("value-%050d", i))
	}
	long := fmt.Sprintf(`[{"key": "long", "operator": "NotIn", "values": ["%s"]}]`, strings.Join(values, `", "`))
	require.ErrorContains(t, author.Patch(t.Context(), theirs.DeepCopy(),
		mergePatch(`{"spec": {"namespaces": {"labelSelector": {"matchExpressions": `+long+`}}}}`)), "nstpl:selectors-full")
	require.NoError(t, s.client.Patch(t.Context(), theirs.DeepCopy(),
		mergePatch(`{"spec": {"namespaces": {"labelSelector": {"matchExpressions": `+long+`}}}}`)))
}

// An operator that starts reads the earlier revisions, so the record of selectors keeps their rules.
func TestEarlierRevisionsStayGuardedAfterARestart(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	tenant := s.newUser(s.name("tenant"))
	template := s.createTemplate("guarded", configMap("prize", "v"), requiresUse, s.selectsClass("class", "gold"))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.createPopulatedNamespace("has-it", withLabel("class", "gold"))
	ns := s.createNamespace("tenant", withLabel("team", "t"))
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		pausesRollout(template)
		s.selectsClass("team", "t")(template)
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	attack := func() {
		t.Helper()
		require.ErrorContains(t, tenant.patchesNamespace(ns.Name, `{"metadata": {"labels": {"class": "gold"}}}`),
			"may not use NamespaceTemplate "+template.Name)
	}
	require.NoError(t, s.operator.Kill())
	attack()
	require.NoError(t, s.startOperator(t.Context()))
	s.waitReconciled("namespace")
	other := s.createTemplate("other", configMap("other", "v"), requiresUse, s.selectsClass("class", "silver"))
	s.eventually(func(c *assert.CollectT) { // the leader has written the record again, and nothing is pending in it
		record := &corev1.ConfigMap{}
		key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.SelectorsConfigMap}
		if assert.NoError(c, s.client.Get(t.Context(), key, record)) {
			assert.Contains(c, fmt.Sprint(record.Data), "g:"+other.Name)
			assert.NotContains(c, record.Data, "pending")
		}
	})
	attack()
}

// An earlier revision that is in force in a namespace is authoritative there also for an operator that starts later.
func TestEarlierRevisionsStayAuthoritativeAfterARestart(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.createTemplate("only", configMap("settings", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Authoritative = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
	})
	s.waitRollout(template, v1alpha1.RolloutComplete)
	ns := s.createPopulatedNamespace("a")
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		pausesRollout(template)
		template.Spec.Authoritative = nil
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	s.restartOperator(t)
	s.waitReconciled("namespace")
	s.createObjects(ns.Name, viewerBinding(undeclaredName))
	s.waitAbsent(ns, viewerBinding(undeclaredName))
}
