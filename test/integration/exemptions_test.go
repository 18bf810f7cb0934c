package integration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

var exemptionsRule = policyRule("get list watch create update patch delete", v1alpha1.GroupVersion.Group,
	v1alpha1.TemplateExemptions.Resource)

// newExemption returns an exemption of a namespace from ConfigMaps of a template, or from the whole template.
func newExemption(
	ns *corev1.Namespace, name string, template *v1alpha1.NamespaceTemplate, configMaps ...string,
) *v1alpha1.TemplateExemption {
	exemption := &v1alpha1.TemplateExemption{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns.Name},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: template.Name, Reason: "a test"},
	}
	for _, object := range configMaps {
		exemption.Spec.Objects = append(exemption.Spec.Objects,
			v1alpha1.ExemptObject{Kind: "ConfigMap", Name: object})
	}
	return exemption
}

// createExemption creates an exemption as an administrator, and returns when it is in force.
func createExemption(s *testScope,
	ns *corev1.Namespace, template *v1alpha1.NamespaceTemplate, configMaps ...string,
) *v1alpha1.TemplateExemption {
	s.t.Helper()
	exemption := newExemption(ns, "x", template, configMaps...)
	require.NoError(s.t, s.client.Create(s.t.Context(), exemption))
	waitExemption(s, exemption, v1alpha1.ExemptionActive, metav1.ConditionTrue, "the namespace is exempt from ")
	return exemption
}

// waitExemption waits until the condition Ready of an exemption is as expected.
func waitExemption(s *testScope,
	exemption *v1alpha1.TemplateExemption, reason string, status metav1.ConditionStatus, message string,
) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &v1alpha1.TemplateExemption{}
		if !assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(exemption), found)) {
			return
		}
		assert.Equal(c, found.Generation, found.Status.ObservedGeneration)
		ready := apimeta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady)
		if assert.NotNil(c, ready) {
			assert.Equal(c, reason, ready.Reason, ready.Message)
			assert.Equal(c, status, ready.Status)
			assert.Contains(c, ready.Message, message)
		}
	})
}

// setConfigValue changes the field "key" of a ConfigMap in a namespace.
func setConfigValue(s *testScope, ns *corev1.Namespace, name, value string) {
	s.t.Helper()
	require.NoError(s.t, s.patchLike(s.client, ns, configMap(name, ""), `{"data": {"key": "`+value+`"}}`))
}

// waitPopulationPass changes a ConfigMap that is not exempt, and returns when the operator has corrected it. The operator has
// then reconciled everything that changed before.
func waitPopulationPass(s *testScope, ns *corev1.Namespace, declared string) {
	s.t.Helper()
	object := parseYAML(s.t, declared)[0]
	setConfigValue(s, ns, object.GetName(), "changed")
	s.waitPresent(ns, declared)
}

// newRuler returns a client of a user who has every right in one namespace, and the rules in all.
func newRuler(s *testScope, short string, ns *corev1.Namespace, verbs ...string) client.Client {
	s.t.Helper()
	name := s.name(short)
	s.grant(s.name("in-namespace"), groupSubject(s.name("unused")), policyRule("*", "*", "*"))
	s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, s.name("in-namespace"), userSubject(name))
	for _, template := range verbs {
		s.grant(s.name(short+"-exempts-"+template), userSubject(name),
			policyRule(v1alpha1.VerbExempt, v1alpha1.GroupVersion.Group, v1alpha1.NamespaceTemplates.Resource, template))
	}
	user, err := s.newUserClient(name)
	require.NoError(s.t, err)
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, s.isAllowedInGroup(name, ns.Name, "create", v1alpha1.GroupVersion.Group,
			v1alpha1.TemplateExemptions.Resource))
	})
	return user
}

// newExempter returns a client of a user who may write exemptions from a template and ConfigMaps in one namespace, and
// is not an initializer.
func newExempter(s *testScope, short string, ns *corev1.Namespace, template string) client.Client {
	s.t.Helper()
	name := s.name(short)
	s.grant(name, userSubject(name),
		policyRule(v1alpha1.VerbExempt, v1alpha1.GroupVersion.Group, v1alpha1.NamespaceTemplates.Resource, template))
	for role, rule := range map[string]rbacv1.PolicyRule{
		"exemptions": exemptionsRule, "configmaps": policyRule("*", "", "configmaps"),
	} {
		s.grant(s.name(role), groupSubject(s.name("unused")), rule)
		s.bindRole(ns.Name, v1alpha1.ClusterRoleKind, s.name(role), userSubject(name))
	}
	user, err := s.newUserClient(name)
	require.NoError(s.t, err)
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, s.isAllowedInGroup(name, ns.Name, "create", v1alpha1.GroupVersion.Group,
			v1alpha1.TemplateExemptions.Resource))
		assert.True(c, s.isAllowed(name, ns.Name, "create", "configmaps"))
	})
	return user
}

// Every right in a namespace does not suffice to exempt it from a policy of the cluster, in whatever way.
func TestOnlyPermittedUsersExemptNamespaces(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	a, b := s.createTemplate("a", configMap("a", "a")), s.createTemplate("b", configMap("b", "b"))
	ns := s.createPopulatedNamespace("ns")
	ruler := newRuler(s, "ruler", ns)
	allowed := newRuler(s, "allowed", ns, a.Name)
	create := func(as client.Client, exemption *v1alpha1.TemplateExemption) error {
		return as.Create(t.Context(), exemption)
	}
	applied := func(as client.Client, name string, template *v1alpha1.NamespaceTemplate) error {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "TemplateExemption",
			"metadata": map[string]any{"name": name, "namespace": ns.Name},
			"spec":     map[string]any{"template": template.Name, "reason": "a test"},
		}}
		return as.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("user"),
			client.ForceOwnership)
	}
	generated := newExemption(ns, "", a)
	generated.GenerateName = "x-"
	denial := "ask for the verb exempt on namespacetemplates/" + a.Name +
		" in the API group policy.nstpl.dev (nstpl:exemption)"
	expectForbidden(t, create(ruler, newExemption(ns, "x", a)), denial)
	expectForbidden(t, create(ruler, newExemption(ns, "x", a, "a")), denial)
	expectForbidden(t, create(ruler, generated.DeepCopy()), denial)
	expectForbidden(t, applied(ruler, "x", a), denial)
	expectForbidden(t, create(allowed, newExemption(ns, "x", b)), "may not exempt namespaces from NamespaceTemplate "+b.Name)
	operatorClient := newOperatorClient(s)
	require.True(t, apierrors.IsForbidden(create(operatorClient, newExemption(ns, "x", a))))

	s.eventually(func(c *assert.CollectT) { assert.NoError(c, create(allowed, newExemption(ns, "x", a, "a"))) })
	require.NoError(t, create(allowed, generated.DeepCopy()))
	require.NoError(t, applied(allowed, "applied", a))

	// Neither the contents of an exemption change without the right, nor the template to or from which it is changed.
	key := newExemption(ns, "x", a)
	for _, patch := range []string{
		`{"spec": {"objects": null}}`, `{"spec": {"reason": "mine"}}`, `{"spec": {"expires": "2050-01-01T00:00:00Z"}}`,
		`{"spec": {"template": "` + b.Name + `"}}`,
	} {
		expectForbidden(t, ruler.Patch(t.Context(), key.DeepCopy(), mergePatch(patch)), "(nstpl:exemption)")
	}
	toB := mergePatch(`{"spec": {"template": "` + b.Name + `"}}`)
	expectForbidden(t, allowed.Patch(t.Context(), key.DeepCopy(), toB), "NamespaceTemplate "+b.Name)
	ofB := newExemption(ns, "of-b", b)
	require.NoError(t, s.client.Create(t.Context(), ofB))
	expectForbidden(t, allowed.Patch(t.Context(), ofB.DeepCopy(), mergePatch(`{"spec": {"template": "`+a.Name+`"}}`)),
		"NamespaceTemplate "+a.Name+" or "+b.Name)

	// The status tells audits whether the exemption is in force. A write to it changes no spec.
	forged := mergePatch(`{"spec": {"template": "` + b.Name + `"}, "status": {"objects": "forged"}}`)
	for _, user := range []client.Client{ruler, allowed} {
		expectForbidden(t, user.Status().Patch(t.Context(), key.DeepCopy(), forged), "the operator writes the status")
	}
	require.NoError(t, s.client.Status().Patch(t.Context(), key.DeepCopy(), forged))
	stored := &v1alpha1.TemplateExemption{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(key), stored))
	require.Equal(t, a.Name, stored.Spec.Template)

	// Labels mean nothing, and deleting an exemption puts the policy into force again.
	require.NoError(t, ruler.Patch(t.Context(), key.DeepCopy(), mergePatch(`{"metadata": {"labels": {"a": "b"}}}`)))
	require.NoError(t, ruler.DeleteAllOf(t.Context(), &v1alpha1.TemplateExemption{}, client.InNamespace(ns.Name)))
	setConfigValue(s, ns, "a", "changed")
	s.waitPresent(ns, configMap("a", "a"))
}

// newOperatorClient returns a client of the operator's ServiceAccount.
func newOperatorClient(s *testScope) client.Client {
	s.t.Helper()
	user, err := s.newUserClient(operatorUser, "system:serviceaccounts", "system:serviceaccounts:nstpl-system")
	require.NoError(s.t, err)
	return user
}

func TestInvalidExemptionsAreDenied(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("a", configMap("a", "a"))
	ns := s.createPopulatedNamespace("ns")
	for name, change := range map[string]func(*v1alpha1.TemplateExemptionSpec){
		"no reason":       func(spec *v1alpha1.TemplateExemptionSpec) { spec.Reason = "" },
		"a blank reason":  func(spec *v1alpha1.TemplateExemptionSpec) { spec.Reason = " \n" },
		"no template":     func(spec *v1alpha1.TemplateExemptionSpec) { spec.Template = "" },
		"not a name":      func(spec *v1alpha1.TemplateExemptionSpec) { spec.Template = "A b" },
		"a resource":      func(spec *v1alpha1.TemplateExemptionSpec) { spec.Objects[0].Kind = "configmaps" },
		"no kind":         func(spec *v1alpha1.TemplateExemptionSpec) { spec.Objects[0].Kind = "" },
		"no name":         func(spec *v1alpha1.TemplateExemptionSpec) { spec.Objects[0].Name = "" },
		"an object twice": func(spec *v1alpha1.TemplateExemptionSpec) { spec.Objects = append(spec.Objects, spec.Objects...) },
	} {
		exemption := newExemption(ns, "x", template, "a")
		change(&exemption.Spec)
		err := s.client.Create(t.Context(), exemption)
		require.True(t, apierrors.IsInvalid(err), "%s: %v", name, err)
	}
}

// An exempt object is not corrected, created or pruned. When the exemption ends, it is as declared again.
func TestExemptObjectIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("t", documents(configMap("a", "1"), configMap("b", "1")))
	other := s.createPopulatedNamespace("other")
	ns := s.createPopulatedNamespace("ns")
	exemption := createExemption(s, ns, template, "a")

	setConfigValue(s, ns, "a", "mine")
	waitPopulationPass(s, ns, configMap("b", "1"))
	s.waitPresent(ns, configMap("a", "mine"))
	setConfigValue(s, other, "a", "mine")
	s.waitPresent(other, configMap("a", "1"))

	require.NoError(t, s.client.Delete(t.Context(), newConfigMap(ns.Name, "a")))
	waitPopulationPass(s, ns, configMap("b", "1"))
	s.waitAbsent(ns, configMap("a", ""))

	s.updateTemplate(template, withObjects(t, documents(configMap("a", "2"), configMap("b", "2"))))
	s.waitPresent(ns, configMap("b", "2"))
	s.waitAbsent(ns, configMap("a", ""))
	s.waitPopulated(ns)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 2, Populated: 2, Updated: 2}, status.Namespaces)
	})

	// It expires: the operator acts at that time, and no other event tells it to.
	expires := metav1.NewTime(time.Now().Add(2 * time.Second).Truncate(time.Second))
	exemption.Spec.Expires = &expires
	patchExemption(s, exemption, `{"spec": {"expires": "`+expires.UTC().Format(time.RFC3339)+`"}}`)
	s.waitPresent(ns, configMap("a", "2"))
	require.False(t, time.Now().Before(expires.Time), "not before it expired")
	waitExemption(s, exemption, v1alpha1.ExemptionExpired, metav1.ConditionTrue, "has expired")

	// It is prolonged, and deleted. A finalizer does not prolong it.
	patchExemption(s, exemption, `{"spec": {"expires": "2050-01-01T00:00:00Z"}, "metadata": {"finalizers": ["example.com/keep"]}}`)
	waitExemption(s, exemption, v1alpha1.ExemptionActive, metav1.ConditionTrue, "configmap/a")
	setConfigValue(s, ns, "a", "mine")
	waitPopulationPass(s, ns, configMap("b", "2"))
	s.waitPresent(ns, configMap("a", "mine"))
	s.delete(exemption)
	s.waitPresent(ns, configMap("a", "2"))
	patchExemption(s, exemption, `{"metadata": {"finalizers": null}}`)
}

func patchExemption(s *testScope, exemption *v1alpha1.TemplateExemption, patch string) {
	s.t.Helper()
	require.NoError(s.t, s.client.Patch(s.t.Context(), exemption.DeepCopy(), mergePatch(patch)))
}

// A template no longer declares an exempt object: it stays until the exemption ends, and is pruned then.
func TestExemptObjectIsPrunedAfterTheExemption(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("t", documents(configMap("a", "1"), configMap("b", "1")))
	ns := s.createPopulatedNamespace("ns")
	exemption := createExemption(s, ns, template, "a", "no-such-object")
	waitExemption(s, exemption, v1alpha1.ExemptionActive, metav1.ConditionTrue,
		"the template does not declare configmap/no-such-object")
	s.updateTemplate(template, withObjects(t, configMap("b", "2")))
	s.waitPresent(ns, documents(configMap("a", "1"), configMap("b", "2")))
	waitPopulationPass(s, ns, configMap("b", "2"))
	s.waitPresent(ns, configMap("a", "1"))
	s.delete(exemption)
	s.waitAbsent(ns, configMap("a", ""))
}

// Of two exemptions from the same object, both are in force, and one remains if the other ends.
func TestTwoExemptionsFromTheSameObject(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("t", documents(configMap("a", "1"), configMap("b", "1")))
	ns := s.createPopulatedNamespace("ns")
	first := createExemption(s, ns, template, "a")
	second := newExemption(ns, "y", template, "a", "b")
	require.NoError(t, s.client.Create(t.Context(), second))
	waitExemption(s, second, v1alpha1.ExemptionActive, metav1.ConditionTrue, "configmap/a, configmap/b")
	s.delete(first)
	setConfigValue(s, ns, "a", "mine")
	patchExemption(s, second, `{"spec": {"objects": [{"kind": "ConfigMap", "name": "a"}]}}`)
	waitPopulationPass(s, ns, configMap("b", "1"))
	s.waitPresent(ns, configMap("a", "mine"))
}

// An exempt copy of a source stays as it is until the exemption ends. Then it follows the source, which is lost here.
func TestExemptCopiesStayWithoutTheirSource(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	s.createObjects(vault.Name, secret("s", "one"))
	letOperatorGet(s, vault, "secrets", "s")
	template := s.createTemplate("t", configMap("b", "1"), copies(sourceOf("Secret", vault, "s")), deletesObjects)
	ns := s.createPopulatedNamespace("ns")
	exemption := newExemption(ns, "x", template)
	exemption.Spec.Objects = []v1alpha1.ExemptObject{{Kind: "Secret", Name: "s"}}
	require.NoError(t, s.client.Create(t.Context(), exemption))
	waitExemption(s, exemption, v1alpha1.ExemptionActive, metav1.ConditionTrue, "secret/s")
	other := s.createPopulatedNamespace("other")

	setSourceValue(s, vault, secret("s", "two"))
	s.waitPresent(other, secret("s", "two"))
	waitPopulationPass(s, ns, configMap("b", "1"))
	s.waitPresent(ns, secret("s", "one"))
	s.deleteIn(vault, secret("s", ""))
	s.waitAbsent(other, secret("s", ""))
	waitPopulationPass(s, ns, configMap("b", "1"))
	s.waitPresent(ns, secret("s", "one"))
	s.delete(exemption)
	s.waitAbsent(ns, secret("s", ""))
}

// A template is deleted with its objects, except for exempt ones, which do not delay it.
func TestTemplateIsDeletedInSpiteOfExemptions(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("t", documents(configMap("a", "1"), configMap("b", "1")), deletesObjects,
		func(t *v1alpha1.NamespaceTemplate) {
			t.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{s.id + "/tier": "gold"}}
		})
	part, whole, metadata, none := s.createPopulatedNamespace("part"), s.createPopulatedNamespace("whole"),
		s.createPopulatedNamespace("metadata"), s.createPopulatedNamespace("none")
	partly := createExemption(s, part, template, "a")
	createExemption(s, whole, template)
	labels := newExemption(metadata, "labels", template)
	labels.Spec.Objects = []v1alpha1.ExemptObject{{Kind: "Namespace", Name: metadata.Name}}
	require.NoError(t, s.client.Create(t.Context(), labels))
	waitExemption(s, labels, v1alpha1.ExemptionActive, metav1.ConditionTrue, "namespace/"+metadata.Name)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 3, Populated: 3, Updated: 3, OptedOut: 1}, status.Namespaces)
	})

	s.delete(template)
	s.waitDeleted(template)
	s.waitAbsent(none, documents(configMap("a", ""), configMap("b", "")))
	s.waitAbsent(part, configMap("b", ""))
	s.waitAbsent(metadata, documents(configMap("a", ""), configMap("b", "")))
	s.waitPresent(part, configMap("a", "1"))
	s.waitPresent(whole, documents(configMap("a", "1"), configMap("b", "1")))
	for _, ns := range []struct {
		namespace *corev1.Namespace
		label     string
	}{{whole, "gold"}, {metadata, "gold"}, {part, ""}, {none, ""}} {
		found := &corev1.Namespace{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns.namespace), found))
		require.Equal(t, ns.label, found.Labels[s.id+"/tier"], found.Name)
	}
	waitExemption(s, partly, v1alpha1.ExemptionNothingMatches, metav1.ConditionFalse, "does not exist")
}

// A namespace that is exempt from a whole template is like one that is opted out of it, and a rollout passes it by.
func TestExemptionFromAWholeTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("t", configMap("config", "one"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout = &v1alpha1.Rollout{MaxUnavailable: new(intstr.FromInt(1))}
	})
	ns, other := s.createPopulatedNamespace("ns"), s.createPopulatedNamespace("other")
	exemption := createExemption(s, ns, template)
	waitNotPopulatedAtAll(s, ns)
	setConfigValue(s, ns, "config", "mine")
	s.updateTemplate(template, withObjects(t, configMap("config", "two")))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.waitPresent(other, configMap("config", "two"))
	s.waitPresent(ns, configMap("config", "mine"))
	s.delete(exemption)
	s.waitPresent(ns, configMap("config", "two"))
	s.waitPopulated(ns)

	unselected := s.createNamespace("unselected", func(ns *corev1.Namespace) { ns.Labels = nil })
	never := newExemption(unselected, "x", template)
	require.NoError(t, s.client.Create(t.Context(), never))
	waitExemption(s, never, v1alpha1.ExemptionNothingMatches, metav1.ConditionFalse, "does not select the namespace")
	out := s.createNamespace("out", func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"}
	})
	opted := newExemption(out, "x", template)
	require.NoError(t, s.client.Create(t.Context(), opted))
	waitExemption(s, opted, v1alpha1.ExemptionNothingMatches, metav1.ConditionFalse, "opted out")
	unknown := newExemption(ns, "unknown", &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "unknown"}})
	require.NoError(t, s.client.Create(t.Context(), unknown))
	waitExemption(s, unknown, v1alpha1.ExemptionNothingMatches, metav1.ConditionFalse, "template unknown does not exist")
}

// waitNotPopulatedAtAll waits until a namespace has no Populated condition.
func waitNotPopulatedAtAll(s *testScope, ns *corev1.Namespace) {
	s.t.Helper()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Empty(c, condition.Status, condition.Message)
	})
}

// An object that cannot be created keeps a new namespace closed. An exemption opens it, although other writes wait.
func TestExemptionOpensANamespaceThatCannotBePopulated(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("failing", documents(notInstalled, configMap("settings", "v")))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	ns := s.createNamespace("ns")
	s.waitReason(ns, "ObjectsFailed")
	user := newExempter(s, "allowed", ns, template.Name)
	expectForbidden(t, user.Create(t.Context(), newConfigMap(ns.Name, "mine")), "(nstpl:population-failed)")

	exemption := newExemption(ns, "x", template)
	exemption.Spec.Objects = []v1alpha1.ExemptObject{{Group: "example.org", Kind: "Gadget", Name: "g"}}
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, user.Create(t.Context(), exemption.DeepCopy())) })
	s.waitPopulated(ns)
	s.waitInitialized(ns)
	require.NoError(t, user.Create(t.Context(), newConfigMap(ns.Name, "mine")))
}

// A template is populated with the operator's rights, so it cannot exempt namespaces from another template.
func TestTemplatesDeclareNoExemptions(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	strict := s.createTemplate("strict", configMap("a", "a"))
	declares := "{apiVersion: policy.nstpl.dev/v1alpha1, kind: TemplateExemption, metadata: {name: x}, " +
		"spec: {template: " + strict.Name + ", reason: none}}"
	for _, as := range []client.Client{
		s.client, s.newTemplateAuthor("author", exemptionsRule, policyRule("*", "", "configmaps"),
			policyRule(v1alpha1.VerbExempt, v1alpha1.GroupVersion.Group, v1alpha1.NamespaceTemplates.Resource)),
	} {
		err := as.Create(t.Context(), s.newTemplate("evil", documents(configMap("b", "b"), declares)))
		require.ErrorContains(t, err, "cannot be declared")
	}
	harmless := s.createTemplate("harmless", configMap("c", "c"))
	body := `{"spec": {"templates": [` + string(rawObjects(t, declares)[0].Raw) + `]}}`
	require.ErrorContains(t, s.client.Patch(t.Context(), harmless.DeepCopy(), mergePatch(body)), "cannot be declared")
}

// An operator that starts does not undo what is exempt, also if a template changed and an exemption was written while no
// operator was running, and it ends those that expired meanwhile.
func TestExemptionsHoldAfterARestart(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.createTemplate("t", documents(configMap("a", "1"), configMap("b", "1"), configMap("c", "1")))
	ns := s.createPopulatedNamespace("ns")
	createExemption(s, ns, template, "a")
	ruler := newRuler(s, "ruler", ns)
	allowed := newRuler(s, "allowed", ns, template.Name)

	require.NoError(t, s.operator.Kill())
	setConfigValue(s, ns, "a", "mine")
	setConfigValue(s, ns, "b", "mine")
	setConfigValue(s, ns, "c", "mine")
	expectForbidden(t, ruler.Create(t.Context(), newExemption(ns, "b", template, "b")), "(nstpl:exemption)")
	require.NoError(t, allowed.Create(t.Context(), newExemption(ns, "b", template, "b")))
	past := newExemption(ns, "c", template, "c")
	past.Spec.Expires = &metav1.Time{Time: time.Now().Add(-time.Hour)}
	require.NoError(t, allowed.Create(t.Context(), past))

	require.NoError(t, s.startOperator(t.Context()))
	s.waitPresent(ns, configMap("c", "1"))
	waitExemption(s, past, v1alpha1.ExemptionExpired, metav1.ConditionTrue, "has expired")
	s.waitPresent(ns, documents(configMap("a", "mine"), configMap("b", "mine")))
	waitPopulationPass(s, ns, configMap("c", "1"))
	s.waitPresent(ns, documents(configMap("a", "mine"), configMap("b", "mine")))
	active, _, err := s.operator.Metric(t.Context(), "nstpl_template_exemptions", `template="`+template.Name+`"`)
	require.NoError(t, err)
	require.EqualValues(t, 2, active)
	next, found, err := s.operator.Metric(t.Context(), "nstpl_exemption_next_expiry_timestamp_seconds")
	require.NoError(t, err)
	require.True(t, found)
	require.Zero(t, next)

	// The namespace is created again, and has none of the earlier one's exemptions.
	s.delete(ns)
	s.waitDeleted(ns)
	again := s.createPopulatedNamespace("ns")
	s.waitPresent(again, documents(configMap("a", "1"), configMap("b", "1"), configMap("c", "1")))
}

// kubectl lists what is exempt and whether it is in force, and waits for it.
func TestStatusOfAnExemptionIsShown(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("t", configMap("a", "1"))
	ns := s.createPopulatedNamespace("ns")
	createExemption(s, ns, template, "a")
	table, err := s.kubectl(t.Context(), "", "get", "nstplex", "-n", ns.Name)
	require.NoError(t, err)
	require.Regexp(t, `NAME +TEMPLATE +OBJECTS +REASON +EXPIRES +STATE +AGE\nx +`+template.Name+
		` +configmap/a +a test +Active +`, table)
	_, err = s.kubectl(t.Context(), "", "wait", "--for=condition=Ready", "templateexemption/x", "-n", ns.Name)
	require.NoError(t, err)
	require.NoError(t, s.client.Patch(t.Context(), newExemption(ns, "x", template), client.RawPatch(types.MergePatchType,
		[]byte(`{"spec": {"objects": null}}`))))
	waitExemption(s, newExemption(ns, "x", template), v1alpha1.ExemptionActive, metav1.ConditionTrue,
		"the namespace is exempt from template "+template.Name)
}
