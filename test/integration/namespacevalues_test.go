package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// protectValue protects a label or an annotation, and returns the rule and a user who may set it.
func protectValue(s *testScope, kind v1alpha1.AttributeKind, short string, values ...string) (client.Object, testUser) {
	s.t.Helper()
	role := s.createAttributeRole("", short+"-setter")
	holder := s.newUser(s.name(short + "-holder"))
	s.bindRole("", v1alpha1.ClusterRoleKind, role, userSubject(holder.name))
	return s.protectAttribute("", short, s.attributeRule(kind, short, v1alpha1.ClusterRoleKind, role, values...)), holder
}

// waitData waits until the ConfigMap of a name has a value in its data.
func waitData(s *testScope, ns *corev1.Namespace, name, value string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.ConfigMap{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Namespace: ns.Name, Name: name}, found)) {
			assert.Equal(c, value, found.Data["value"])
		}
	})
}

// withValue returns a ConfigMap with a value.
func withValue(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %q}\ndata: {value: %q}\n", name, value)
}

// waitAccepted waits until the Accepted condition of a template has a status and a reason, and a message that contains a text.
func waitAccepted(s *testScope, template *v1alpha1.NamespaceTemplate, status, reason, text string) {
	s.t.Helper()
	s.waitTemplateStatus(template, func(c *assert.CollectT, found v1alpha1.NamespaceTemplateStatus) {
		accepted := templateCondition(found, v1alpha1.TemplateAccepted)
		assert.Equal(c, status, string(accepted.Status))
		assert.Equal(c, reason, accepted.Reason)
		assert.Contains(c, accepted.Message, text)
	})
}

func TestValuesOfNamespacesAreRenderedAndFollowed(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	_, holder := protectValue(s, v1alpha1.LabelAttribute, "tier")
	_, writer := protectValue(s, v1alpha1.AnnotationAttribute, "note")
	tier, note := s.name("tier"), s.name("note")
	template := s.createTemplate("values",
		withValue("tier", "$(NAMESPACE) is $(LABEL:"+tier+"), not $$(LABEL:"+tier+")")+"---\n"+
			withValue("of-$(LABEL:"+tier+")", "$(LABEL:"+tier+")"),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Overlays = []v1alpha1.Overlay{{
				Name: "noted", Namespaces: selectLabel("noted", "yes"),
				Annotations:       map[string]string{"example.com/note": "$(ANNOTATION:" + note + ")"},
				NamespaceMetadata: &v1alpha1.NamespaceMetadata{Annotations: map[string]string{"example.com/of": "<$(ANNOTATION:" + note + ")>"}},
			}}
		})
	ns := s.createNamespace("a")
	s.waitNotPopulated(ns, "template "+template.Name+": the namespace has no value of the label "+tier+", for $(LABEL:"+
		tier+") in configmap/tier: ask a user who may set it")
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, "ValueMissing", condition.Reason)
	})
	s.waitEvent(ns, corev1.EventTypeWarning, "ValueMissing", "has no value of the label "+tier)
	expectForbidden(t, holder.createConfigMap(ns, "early"), "a user who may set the label or annotation sets it")

	holder.setValue(ns, "labels", tier, new("gold"))
	s.waitPopulated(ns)
	s.waitInitialized(ns)
	waitData(s, ns, "tier", ns.Name+" is gold, not $(LABEL:"+tier+")")
	waitData(s, ns, "of-gold", "gold")

	position := s.auditPosition()
	other := s.createNamespace("b")
	holder.setValue(other, "labels", tier, new("silver"))
	waitData(s, other, "of-silver", "silver")
	require.Empty(t, s.writesSince(position, func(r request) bool {
		return r.User.Username == operatorUser && r.ObjectRef.Namespace == ns.Name
	}), "another namespace is not written")

	holder.setValue(ns, "labels", tier, new("silver"))
	waitData(s, ns, "tier", ns.Name+" is silver, not $(LABEL:"+tier+")")
	waitData(s, ns, "of-silver", "silver")
	s.waitAbsent(ns, withValue("of-gold", ""))

	// An annotation may have any text.
	const odd = "\"}, {\"kind\": \"Group\"\n- $(NAMESPACE) $(LABEL:x) \u0085 $$(CREATOR)"
	writer.setValue(ns, "annotations", note, new(odd))
	s.patchLabel(ns, "noted", "yes")
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.ConfigMap{}
		if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "tier"}, found)) {
			assert.Equal(c, odd, found.Annotations["example.com/note"])
		}
		stored := &corev1.Namespace{}
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), stored))
		assert.Equal(c, "<"+odd+">", stored.Annotations["example.com/of"])
	})

	// Without the value, the objects stay as they are.
	holder.setValue(ns, "labels", tier, nil)
	s.waitNotPopulated(ns, "has no value of the label "+tier)
	waitData(s, ns, "of-silver", "silver")
	s.delete(newConfigMap(ns.Name, "of-silver"))
	holder.setValue(ns, "labels", tier, new("bronze"))
	waitData(s, ns, "of-bronze", "bronze")
	s.waitPopulated(ns)

	// A namespace that is opted out is left alone.
	s.patchNamespace(ns, `{"metadata": {"annotations": {"policy/namespace-template-opt-out": "true"}}}`)
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) { assert.Empty(c, condition.Reason) })
	holder.setValue(ns, "labels", tier, new("gold"))
	s.waitPopulated(createNamespaceWithValue(s, holder, "c", tier, "gold"))
	waitData(s, ns, "of-bronze", "bronze")
}

// createNamespaceWithValue creates a namespace with a label that a user may set.
func createNamespaceWithValue(s *testScope, u testUser, short, key, value string) *corev1.Namespace {
	s.t.Helper()
	var ns *corev1.Namespace
	s.eventually(func(c *assert.CollectT) {
		created, err := u.createNamespace(short, map[string]string{key: value}, nil)
		if assert.NoError(c, err) {
			ns = created
		}
	})
	return ns
}

// A user without the role cannot choose the value: not when the namespace is created, not later, and not by
// subresources. Removing the value is denied as well.
func TestUsersWithoutTheRoleCannotChooseValues(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	_, holder := protectValue(s, v1alpha1.LabelAttribute, "tier", "gold", "silver")
	_, writer := protectValue(s, v1alpha1.AnnotationAttribute, "note")
	tier, note := s.name("tier"), s.name("note")
	s.createTemplate("values", withValue("tier", "$(LABEL:"+tier+")$(ANNOTATION:"+note+")"))
	mallory := s.newUser(s.name("mallory"))
	mallory.grantUseOfAllTemplates()
	_, err := mallory.createNamespace("a", map[string]string{tier: "gold"}, nil)
	expectForbidden(t, err, "may not set label "+tier)
	_, err = mallory.createNamespace("a", nil, map[string]string{note: "x"})
	expectForbidden(t, err, "may not set annotation "+note)
	ns, err := mallory.createNamespace("a", nil, nil)
	require.NoError(t, err)
	mallory.expectAllDenied(ns, "labels", tier, new("gold"), "may not set label "+tier)
	mallory.expectAllDenied(ns, "labels", tier, new("platinum"), "may not set label "+tier)
	mallory.expectAllDenied(ns, "annotations", note, new("x"), "may not set annotation "+note)

	holder.setValue(ns, "labels", tier, new("silver"))
	writer.setValue(ns, "annotations", note, new("!"))
	waitData(s, ns, "tier", "silver!")
	// A binding in the namespace does not count for the namespace itself.
	s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, s.name("tier-setter"), userSubject(mallory.name))
	mallory.expectAllDenied(ns, "labels", tier, new("gold"), "may not change label "+tier)
	mallory.expectAllDenied(ns, "labels", tier, nil, "may not remove label "+tier)
	mallory.expectAllDenied(ns, "annotations", note, new("x"), "may not change annotation "+note)
	mallory.expectAllDenied(ns, "annotations", note, nil, "may not remove annotation "+note)
	// Values that no rule lists are denied to all users.
	holder.grantUseOfAllTemplates()
	holder.expectAllDenied(ns, "labels", tier, new("platinum"), "may not change label "+tier)
	waitData(s, ns, "tier", "silver!")
}

// An author needs a rule that protects the value in all namespaces, and may see what the objects would show.
func TestTemplatesRenderOnlyProtectedValues(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	tier := s.name("tier")
	template := s.newTemplate("values", withValue("tier", "$(LABEL:"+tier+")"))
	refused := "$(LABEL:" + tier + ") cannot be used, since no ClusterProtectedAttribute protects the label " + tier
	require.ErrorContains(t, s.client.Create(t.Context(), template.DeepCopy()), refused)

	// Neither a rule of a namespace nor one about the annotation of the same name suffices.
	role := s.createAttributeRole("", "any")
	s.protectAttribute("default", "tier", s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, role))
	annotation := s.protectAttribute("", "tier",
		s.attributeRule(v1alpha1.AnnotationAttribute, "tier", v1alpha1.ClusterRoleKind, role))
	require.ErrorContains(t, s.client.Create(t.Context(), template.DeepCopy()), refused)
	for _, change := range []func(*v1alpha1.NamespaceTemplate){
		withObjects(t, withValue("a", "$(ANNOTATION:"+tier+")")+"---\n"+withValue("b", "$(LABEL:"+tier+")")),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Templates = nil
			template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{
				Annotations: map[string]string{"example.com/tier": "$(LABEL:" + tier + ")"},
			}
		},
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Templates = rawObjects(t, withValue("tier", "x"))
			template.Spec.Overlays = []v1alpha1.Overlay{{
				Name: "o", Namespaces: selectLabel("a", "b"), Patches: []v1alpha1.Patch{{
					Patch: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tier}\ndata: {value: \"\\u0024(LABEL:" + tier + ")\"}",
				}},
			}}
		},
	} {
		other := template.DeepCopy()
		change(other)
		require.ErrorContains(t, s.client.Create(t.Context(), other), refused)
	}
	require.NoError(t, s.client.Delete(t.Context(), annotation))
	s.protectAttribute("", "tier2", s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, role))

	author := s.newTemplateAuthor("author", policyRule("create patch", "", "configmaps"))
	err := author.Create(t.Context(), template.DeepCopy())
	expectForbidden(t, err, "may not get namespaces in all namespaces")
	s.grant(s.name("reads"), userSubject(s.name("author")), policyRule("get", "", "namespaces"))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, author.Create(t.Context(), template.DeepCopy())) })
	waitAccepted(s, template, "True", "Accepted", "")
}

// The operator may learn of a rule while it accepts the template that was created after the rule.
func TestARuleArrivesWhileItsTemplateIsAccepted(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	through := restartBehindProxy(t, s.testCluster)
	through.holdWatches(t, "/clusterprotectedattributes")
	rule := &v1alpha1.ClusterProtectedAttribute{
		ObjectMeta: metav1.ObjectMeta{Name: s.name("tier")},
		AttributeRule: s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind,
			s.createAttributeRole("", "setter")),
	}
	require.NoError(t, s.client.Create(t.Context(), rule))
	template := s.newTemplate("values", withValue("tier", "$(LABEL:"+s.name("tier")+")"))
	accepting, release := through.holdWrites("/" + template.Name + "/status")
	require.NoError(t, s.client.Create(t.Context(), template))
	waitArrived(t, accepting)
	through.releaseWatches()
	s.waitEnforced(rule)
	release()
	waitAccepted(s, template, "True", "Accepted", "")
}

// If the rule is deleted, the template is not rendered any more, and its objects stay as they are.
func TestValuesAreNotRenderedOnceTheirRuleIsDeleted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	rule, holder := protectValue(s, v1alpha1.LabelAttribute, "tier")
	tier := s.name("tier")
	template := s.createTemplate("values", withValue("tier", "$(LABEL:"+tier+")")+"---\n"+configMap("fixed", "v"))
	ns := createNamespaceWithValue(s, holder, "a", tier, "silver")
	waitData(s, ns, "tier", "silver")
	s.waitPopulated(ns)

	require.NoError(t, s.client.Delete(t.Context(), rule))
	waitAccepted(s, template, "False", v1alpha1.TemplateValueNotProtected,
		"$(LABEL:"+tier+") cannot be used, since no ClusterProtectedAttribute protects the label "+tier)
	s.waitNotPopulated(ns, "no ClusterProtectedAttribute protects the label "+tier)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, "the template is not accepted: the objects stay as they are in the namespaces whose revision uses "+
			"the value", templateCondition(status, v1alpha1.TemplatePopulated).Message)
		assert.Equal(c, "False", string(templateCondition(status, "Ready").Status))
	})
	// Without a rule, every user who may change the namespace can set the label. That changes nothing.
	mallory := s.newUser(s.name("mallory"))
	mallory.grantUseOfAllTemplates()
	mallory.setValue(ns, "labels", tier, new("gold"))
	held, err := mallory.createNamespace("b", map[string]string{tier: "gold"}, nil)
	require.NoError(t, err)
	s.waitNotPopulated(held, "no ClusterProtectedAttribute protects the label "+tier)
	expectForbidden(t, mallory.createConfigMap(held, "early"), "could not be populated")
	s.waitAbsent(held, withValue("tier", ""))
	waitData(s, ns, "tier", "silver")
	// An author cannot change the template either, unless the token goes.
	err = s.client.Patch(t.Context(), template.DeepCopy(), mergePatch(`{"spec": {"driftPolicy": "Report"}}`))
	require.ErrorContains(t, err, "no ClusterProtectedAttribute protects the label "+tier)

	s.protectAttribute("", "again",
		s.attributeRule(v1alpha1.LabelAttribute, "tier", v1alpha1.ClusterRoleKind, s.name("tier-setter")))
	waitAccepted(s, template, "True", "Accepted", "")
	s.waitPopulated(ns)
	s.waitPopulated(held)
	holder.setValue(ns, "labels", tier, new("bronze"))
	waitData(s, ns, "tier", "bronze")
}

// The value is decided by the API server even while no operator runs: a change is denied, and rendered values stay.
func TestValuesWithoutTheOperator(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	rule, holder := protectValue(s, v1alpha1.LabelAttribute, "tier")
	tier := s.name("tier")
	s.createTemplate("values", withValue("tier", "$(LABEL:"+tier+")"))
	ns := createNamespaceWithValue(s, holder, "a", tier, "silver")
	waitData(s, ns, "tier", "silver")
	require.NoError(t, cluster.operator.Kill())
	mallory := s.newUser(s.name("mallory"))
	require.Error(t, mallory.metadataWrites("labels", tier, new("gold"))["merge patch"](ns.Name))
	require.Error(t, holder.metadataWrites("labels", tier, new("gold"))["merge patch"](ns.Name))
	// The rule goes while no operator runs. The API server still asks for the operator then.
	require.NoError(t, s.client.Delete(t.Context(), rule))
	require.Error(t, mallory.metadataWrites("labels", tier, new("gold"))["merge patch"](ns.Name))
	require.NoError(t, cluster.startOperator(t.Context()))
	s.waitNotPopulated(ns, "no ClusterProtectedAttribute protects the label "+tier)
	mallory.setValue(ns, "labels", tier, new("gold"))
	waitData(s, ns, "tier", "silver")
}

// A template cannot depend on what templates set, so they never change what they set for one another without end.
func TestTemplatesCannotRenderWhatTemplatesSet(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	role := s.createAttributeRole("", "setter")
	s.bindRole("", v1alpha1.ClusterRoleKind, role, groupSubject("system:masters"))
	for _, short := range []string{"x", "y"} {
		s.protectAttribute("", short, s.attributeRule(v1alpha1.AnnotationAttribute, short, v1alpha1.ClusterRoleKind, role))
	}
	setsAnnotation := func(short, value string) func(*v1alpha1.NamespaceTemplate) {
		return func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{
				Annotations: map[string]string{s.name(short): value},
			}
		}
	}
	token := func(short string) string { return "$(ANNOTATION:" + s.name(short) + ")" }
	require.ErrorContains(t, s.client.Create(t.Context(), s.newTemplate("self", "", setsAnnotation("x", token("x")+"x"))),
		"since the template itself sets the annotation "+s.name("x"))

	var setter *v1alpha1.NamespaceTemplate
	s.eventually(func(c *assert.CollectT) { // until the operator knows the binding
		setter = s.newTemplate("setter", "", setsAnnotation("x", "1"))
		assert.NoError(c, s.client.Create(t.Context(), setter))
	})
	s.waitTemplateObserved(setter)
	s.eventually(func(c *assert.CollectT) { // until the replica knows the other template
		renders := s.newTemplate("renders", "", setsAnnotation("y", token("x")))
		assert.ErrorContains(c, s.client.Create(t.Context(), renders, client.DryRunAll), "since template "+setter.Name+
			" sets the annotation "+s.name("x"))
	})
	require.ErrorContains(t, s.client.Create(t.Context(), s.newTemplate("renders", withValue("a", token("x")))),
		"since template "+setter.Name+" sets")
	renders := s.createTemplate("renders", withValue("a", token("y")))
	s.eventually(func(c *assert.CollectT) {
		changed := setter.DeepCopy()
		setsAnnotation("y", "1")(changed)
		assert.ErrorContains(c, s.client.Patch(t.Context(), changed, client.MergeFrom(setter), client.DryRunAll),
			"from which template "+renders.Name+" renders")
	})
}

// Two or three templates of which each renders what the one before sets may be stored if they are written at the same
// moment. The operator renders none of them.
func TestTemplatesInRingsAreNotRendered(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	for _, ring := range []int{2, 3} {
		s := newScope(t, cluster)
		s.id = fmt.Sprint(s.id, ring)
		role := s.createAttributeRole("", "setter")
		for i := range ring {
			short := fmt.Sprint("x", i)
			s.protectAttribute("", short, s.attributeRule(v1alpha1.AnnotationAttribute, short, v1alpha1.ClusterRoleKind, role))
		}
		require.NoError(t, cluster.operator.Kill())
		s.disableVetting()
		for i := range ring {
			require.NoError(t, s.client.Create(t.Context(), s.newTemplate(fmt.Sprint("t", i), configMap(fmt.Sprint("c", i), "v"),
				func(template *v1alpha1.NamespaceTemplate) {
					template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Annotations: map[string]string{
						s.name(fmt.Sprint("x", i)): "$(ANNOTATION:" + s.name(fmt.Sprint("x", (i+1)%ring)) + ")x",
					}}
				})))
		}
		require.NoError(t, cluster.startOperator(t.Context()))
		holder := s.newUser(s.name("holder"))
		s.bindRole("", v1alpha1.ClusterRoleKind, role, userSubject(holder.name))
		ns := s.createNamespace("a")
		s.waitNotPopulated(ns, fmt.Sprintf("template %s: the token $(ANNOTATION:%s) cannot be used, since template %s sets",
			s.name("t0"), s.name("x1"), s.name("t1")))
		holder.setValue(ns, "annotations", s.name("x0"), new("1"))
		position := s.auditPosition()
		probe := s.createTemplate("probe", configMap("probe", "1"))
		s.waitUntouched(ns, probe, "2")
		require.Empty(t, s.writesSince(position, func(r request) bool {
			return r.User.Username == operatorUser && r.ObjectRef.Resource == "namespaces" && r.ObjectRef.Name == ns.Name &&
				r.ObjectRef.Subresource == ""
		}), "the operator sets none of the annotations")
		stored := &corev1.Namespace{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), stored))
		require.Equal(t, "1", stored.Annotations[s.name("x0")])
		require.NotContains(t, stored.Annotations, s.name("x1"))
	}
}

// A Role that depends on a value may be missing or invalid in a namespace, so a RoleBinding to it needs the right to
// bind it, and so does a ClusterRole that a value chooses.
func TestValuesInRolesNeedTheRightToBind(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	protectValue(s, v1alpha1.LabelAttribute, "tier")
	token := "$(LABEL:" + s.name("tier") + ")"
	author := s.newTemplateAuthor("author", policyRule("get", "", "namespaces"), policyRule("get", "", "secrets"),
		policyRule("create patch", "rbac.authorization.k8s.io", "roles rolebindings"))
	role := func(names string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: reader}\n" +
			"rules: [{apiGroups: [\"\"], resources: [secrets], verbs: [get], resourceNames: [" + names + "]}]\n"
	}
	binding := func(kind, name string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: reader}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: " + kind + ", name: \"" + name + "\"}\n" +
			"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: \"" + token + "\"}]\n"
	}
	try := func(objects string) error {
		return author.Create(t.Context(), s.newTemplate("roles", objects), client.DryRunAll)
	}
	require.NoError(t, try(role("a")+"---\n"+binding("Role", "reader")))
	expectForbidden(t, try(role("\""+token+"\"")+"---\n"+binding("Role", "reader")), "Role reader contains "+token)
	expectForbidden(t, try(binding("ClusterRole", token)), "lets other users choose the ClusterRole")
	expectForbidden(t, try(binding("ClusterRole", "$(NAMESPACE)")), "lets other users choose the ClusterRole")
	require.Error(t, try(binding(token, "reader")))
}

// A namespace whose revision of a template does not render from the value yet is not affected by it, and a rollout
// stops where the value is missing.
func TestValuesDuringARollout(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	_, holder := protectValue(s, v1alpha1.LabelAttribute, "tier")
	tier := s.name("tier")
	template := s.createTemplate("values", withValue("tier", "old"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout = &v1alpha1.Rollout{
			MaxUnavailable: new(intstr.FromInt32(1)), MaxFailures: new(intstr.FromInt32(0)),
			Waves: []v1alpha1.Wave{{Selector: selectLabel("wave", "1").LabelSelector}},
		}
	})
	first := s.createPopulatedNamespace("a", withLabel("wave", "1"))
	second := createNamespaceWithValue(s, holder, "b", tier, "gold")
	s.waitPopulated(second)
	s.updateTemplate(template, withObjects(t, withValue("tier", "$(LABEL:"+tier+")")))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		if assert.NotEmpty(c, status.Revisions) {
			assert.Equal(c, v1alpha1.RolloutStopped, status.Revisions[0].State)
		}
	})
	s.waitNotPopulated(first, "has no value of the label "+tier)
	waitData(s, first, "tier", "old")
	waitData(s, second, "tier", "old")
	holder.setValue(first, "labels", tier, new("silver"))
	waitData(s, first, "tier", "silver")
}

// Whether a new namespace has the values of a template is up to its creator, so it stops no rollout of a template that
// another namespace has.
func TestANewNamespaceWithoutAValueStopsNoRollout(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template, old, holder, paused := pausedForValue(s)
	tier := s.name("tier")
	first := createNamespaceAfter(s, paused.StartTime)
	s.waitNotPopulated(first, "has no value of the label "+tier)
	s.waitRollout(template, v1alpha1.RolloutStopped) // nothing shows that the template can be populated at all
	holder.setValue(first, "labels", tier, new("silver"))
	s.waitPopulated(first)
	s.waitRollout(template, v1alpha1.RolloutPaused)
	added := s.createNamespace("added")
	s.waitNotPopulated(added, "has no value of the label "+tier)
	s.updateTemplate(template, withRollout(nil))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	waitData(s, old, "tier", "gold")
}

// A rollout that stopped while it was paused, when only a new namespace had the revision, goes on in the others.
func TestANewNamespaceWithoutAValueHoldsNoResumedRollout(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template, old, _, paused := pausedForValue(s)
	createNamespaceAfter(s, paused.StartTime)
	s.waitRollout(template, v1alpha1.RolloutStopped)
	s.updateTemplate(template, withRollout(nil))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	waitData(s, old, "tier", "gold")
}

// pausedForValue pauses the rollout of a revision that renders from the label tier, which the old namespace has.
func pausedForValue(s *testScope) (
	template *v1alpha1.NamespaceTemplate, old *corev1.Namespace, holder testUser, paused v1alpha1.TemplateRevision,
) {
	s.t.Helper()
	_, holder = protectValue(s, v1alpha1.LabelAttribute, "tier")
	tier := s.name("tier")
	template = s.createTemplate("values", withValue("tier", "old"))
	old = createNamespaceWithValue(s, holder, "old", tier, "gold")
	s.waitPopulated(old)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		withObjects(s.t, withValue("tier", "$(LABEL:"+tier+")"))(template)
		template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
	})
	return template, old, holder, s.waitRollout(template, v1alpha1.RolloutPaused)
}
