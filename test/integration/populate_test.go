package integration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/test/audit"
	"nstpl.dev/nstpl/test/marks"
)

// A namespace that is created with kubectl is populated, and "kubectl wait" reports that.
func TestNewNamespaceIsPopulated(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("team-a")}}
	s.createTemplate("defaults", policyKinds, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel(corev1.LabelMetadataName, ns.Name)
	})

	_, err := s.kubectl(t.Context(), "", "create", "namespace", ns.Name)
	require.NoError(t, err)
	_, err = s.kubectl(t.Context(), "", "wait", "--for=condition=policy.nstpl.dev/Populated", "namespace/"+ns.Name)
	require.NoError(t, err)

	for _, object := range parseYAML(t, storedPolicyKinds(ns.Name)) {
		stored := s.mustGet(ns, object)
		require.Empty(t, differences(object.Object, stored.Object), "%s %s", object.GetKind(), object.GetName())
		require.Equal(t, s.name("defaults"), stored.GetLabels()[v1alpha1.TemplateNameLabel])
		require.NotContains(t, stored.GetAnnotations(), v1alpha1.AdoptedAnnotation)
	}
	require.Equal(t, map[string]int{
		"patch networkpolicies": 1, "patch roles": 1, "patch rolebindings": 1, "patch resourcequotas": 1,
		"patch limitranges": 1, "patch serviceaccounts": 1, "patch configmaps": 1, "patch secrets": 1,
		"patch poddisruptionbudgets": 1, "patch namespaces/status": 1,
	}, s.countWrites(ns), "one write for each object, and one for the namespace")
}

func TestExistingNamespacesArePopulatedByANewTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns, other := s.createNamespace("old"), s.createNamespace("other", withLabel(testLabel, "none"))
	template := s.createTemplate("defaults", configMap("settings", "v"))
	s.waitPopulated(ns)
	s.waitPresent(ns, configMap("settings", "v"))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, status.Namespaces)
		assert.Equal(c, []v1alpha1.GroupKind{{Kind: "ConfigMap"}}, status.Kinds)
	})
	require.Empty(t, s.countWrites(other))
	s.patchNamespace(other, fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, testLabel, s.id))
	s.waitPopulated(other)
	s.waitPresent(other, configMap("settings", "v"))
	_, err := s.kubectl(t.Context(), "", "wait", "--for=condition=Populated", "nstpl/"+template.Name)
	require.NoError(t, err)
}

func TestManyObjectsAreAppliedOnce(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	var objects []string
	for i := range 60 {
		objects = append(objects, configMap(fmt.Sprintf("settings-%02d", i), fmt.Sprint(i)))
	}
	s.createTemplate("many", documents(objects...))
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, documents(objects...))
	require.Equal(t, map[string]int{"patch configmaps": 60, "patch namespaces/status": 1}, s.countWrites(ns))
}

func TestUnicodeValuesArePreserved(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const value = "Grüße, 世界 🎉 \u0085\u2028\u00a0\ufeff\u200f \U0001F468\u200d\U0001F469 $(NAMESPACE)…"
	s.createTemplate("words", configMap("words", value))
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, configMap("words", strings.ReplaceAll(value, "$(NAMESPACE)", ns.Name)))
}

// The name of a user is only ever a value, whichever characters it contains.
func TestCreatorMayHaveAnyName(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	for short, name := range map[string]string{
		"plain":     "jane",
		"email":     "jane@example.com",
		"account":   "system:serviceaccount:ci:deployer",
		"quotes":    `"'; rm -rf \ "`,
		"lines":     "a: b\n---\nkind: ClusterRoleBinding\n- c",
		"yaml":      "*anchor &x !!binary {a: [b]} # c",
		"number":    "007",
		"boolean":   "yes",
		"null":      "null",
		"namespace": "$(NAMESPACE)",
		"creator":   "$(CREATOR)$$(CREATOR)",
		"unicode":   "Ünïcödé 世界",
		"controls":  "a\u0085b\u007fc\u0080d\u2028e\ufefff\x01",
		"template":  "{{ .Values }} ${HOME} $HOME",
	} {
		t.Run(short, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			s.createTemplate("binding", `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: creator
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: $(CREATOR)}
`)
			ns := s.createPopulatedNamespace("a", withCreator(name))
			binding := &rbacv1.RoleBinding{}
			require.NoError(t,
				s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "creator"}, binding))
			require.Equal(t, []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}, binding.Subjects)
			require.Equal(t, map[string]int{"patch rolebindings": 1, "patch namespaces/status": 1}, s.countWrites(ns), s.outcomes(ns))
		})
	}
}

// The creator of a namespace that was created before nstpl was installed is unknown.
func TestUnknownCreatorOmitsObjects(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", documents(configMap("who", "$(CREATOR)"), configMap("where", "$(NAMESPACE)")))
	ns := s.preexistingNamespace()
	s.applyLabels(ns)
	s.waitPopulated(ns)
	s.waitPresent(ns, configMap("where", ns.Name))
	s.waitAbsent(ns, configMap("who", ""))
	s.waitEvent(ns, corev1.EventTypeWarning, "CreatorUnknown", "configmap/who")
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "configmap/who: left out")
	})

	s.patchNamespace(ns, `{"metadata": {"annotations": {"authorization.k8s.io/creator": "jane"}}}`)
	s.waitPresent(ns, configMap("who", "jane")) // an administrator may set the creator later
}

func TestObjectsOfKindInstalledLaterArePopulated(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\nspec:\n  size: 3\n"
	template := s.createTemplate("defaults", documents(configMap("settings", "v"), widget))
	ns := s.createNamespace("a")
	s.waitPresent(ns, configMap("settings", "v"))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, "widget.example.com/w")
		assert.Contains(c, condition.Message, "CustomResourceDefinition")
	})
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, int32(1), status.Namespaces.Failed)
	})

	s.applyYAML(widgetDefinition)
	s.waitPopulated(ns)
	s.waitPresent(ns, widget)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, status.Namespaces)
		assert.Empty(c, status.Failures)
	})

	stored := s.mustGet(ns, parseYAML(t, widget)[0])
	stored.Object["spec"] = map[string]any{"size": int64(7)}
	require.NoError(t, s.client.Update(t.Context(), stored))
	s.waitPresent(ns, widget)
}

// A kind may be installed in a version that its API group did not have when the operator learned of the group.
func TestObjectsOfAKindInALaterVersionOfItsGroupArePopulated(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	install := func(kind, version string) {
		lower := strings.ToLower(kind)
		s.applyYAML(fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.parts.example.com}
spec:
  group: parts.example.com
  names: {kind: %[2]s, plural: %[1]ss}
  scope: Namespaced
  versions:
  - {name: %[3]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`, lower, kind, version))
	}
	const nut = "{apiVersion: parts.example.com/v1alpha1, kind: Nut, metadata: {name: nut}}"
	const bolt = "{apiVersion: parts.example.com/v1, kind: Bolt, metadata: {name: bolt}}"
	cogs{s, "parts.example.com"}.allow()
	s.createTemplate("bolts", bolt)
	ns := s.createNamespace("a")
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "bolt.parts.example.com/bolt")
	})
	install("Nut", "v1alpha1")
	s.eventually(func(c *assert.CollectT) { // until the operator knows the kind
		assert.NoError(c, client.IgnoreAlreadyExists(s.client.Create(t.Context(), s.newTemplate("nuts", nut))))
	})
	s.waitPresent(ns, nut)
	install("Bolt", "v1")
	s.waitPresent(ns, bolt)
	s.waitPopulated(ns)
}

// A CustomResourceDefinition can be deleted with all its objects, and created again.
func TestObjectsOfReinstalledKindArePopulated(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const gadget = "apiVersion: example.com/v1\nkind: Gadget\nmetadata:\n  name: g\nspec:\n  size: 3\n"
	definition := strings.NewReplacer("widgets", "gadgets", "Widget", "Gadget").Replace(widgetDefinition)
	s.applyYAML(definition)
	s.createTemplate("defaults", documents(configMap("settings", "v"), gadget))
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, gadget)

	s.deleteYAML(definition)
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, "gadget.example.com/g")
	})
	s.waitPresent(ns, configMap("settings", "v"))

	s.applyYAML(definition)
	s.waitPopulated(ns)
	s.waitPresent(ns, gadget)
	require.Equal(t, 1, s.countWrites(ns)["patch configmaps"])
}

// A field that a template no longer declares is removed, and no other field is.
func TestFieldNoLongerDeclaredIsRemoved(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	declared := func(data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata: " + data + "\n"
	}
	template := s.createTemplate("defaults", declared("{keep: a, drop: b}"))
	ns := s.createPopulatedNamespace("a")
	settings := s.mustGet(ns, parseYAML(t, declared("{}"))[0])
	require.NoError(t, unstructured.SetNestedField(settings.Object, "too", "data", "mine"))
	require.NoError(t, s.client.Update(t.Context(), settings))
	s.updateTemplate(template, withObjects(t, declared("{keep: c}")))
	s.eventually(func(c *assert.CollectT) {
		found, err := s.get(ns, settings)
		assert.NoError(c, err)
		assert.Equal(c, map[string]any{"keep": "c", "mine": "too"}, found.Object["data"])
	})
}

// A Job's template is immutable, so the Job is replaced, but only with an annotation that allows it.
func TestJobIsReplacedOnlyWithConsent(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	job := func(image, annotations string) string {
		return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata:
  name: setup
  annotations: {%s}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: setup, image: %q, command: [setup, $(NAMESPACE)]}
`, annotations, image)
	}
	image := func(ns *corev1.Namespace) func() (string, error) {
		return func() (string, error) {
			found := &batchv1.Job{}
			err := s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "setup"}, found)
			if err != nil {
				return "", err
			}
			return found.Spec.Template.Spec.Containers[0].Image, nil
		}
	}
	template := s.createTemplate("setup", job("v1", ""))
	ns := s.createPopulatedNamespace("a")
	first := s.mustGet(ns, parseYAML(t, job("v1", ""))[0])

	s.updateTemplate(template, withObjects(t, job("v2", "")))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, v1alpha1.ReplaceAnnotation)
	})
	require.Equal(t, first.GetUID(), s.mustGet(ns, first).GetUID())

	consent := v1alpha1.ReplaceAnnotation + `: "true"`
	s.updateTemplate(template, withObjects(t, job("v2", consent)))
	s.waitPopulated(ns)
	got, err := image(ns)()
	require.NoError(t, err)
	require.Equal(t, "v2", got)
	require.NotEqual(t, first.GetUID(), s.mustGet(ns, first).GetUID())
}

func TestBindingIsReplacedWhenItsRoleRefChanges(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	binding := func(role string) string {
		return fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: team
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %s}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: team}
`, role)
	}
	template := s.createTemplate("access", binding("view"))
	ns := s.createPopulatedNamespace("a")
	s.updateTemplate(template, withObjects(t, binding("edit")))
	s.waitPresent(ns, binding("edit"))
	s.waitPopulated(ns)

	// A roleRef that the operator may not bind is not accepted.
	changed := template.DeepCopy()
	withObjects(t, binding("cluster-admin"))(changed)
	err := s.client.Patch(t.Context(), changed, client.MergeFrom(template))
	require.ErrorContains(t, err, `the operator may not bind ClusterRole "cluster-admin"`)
	require.Empty(t,
		differences(parseYAML(t, binding("edit"))[0].Object, s.mustGet(ns, parseYAML(t, binding("edit"))[0]).Object))
}

// An object that cannot be applied does not prevent the others from being applied.
func TestFailingObjectDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	var good []string
	for i := range 9 {
		good = append(good, configMap(fmt.Sprintf("good-%d", i), "v"))
	}
	for policy, want := range map[v1alpha1.FailurePolicy]corev1.ConditionStatus{
		v1alpha1.FailureFail: corev1.ConditionFalse, v1alpha1.FailureIgnore: corev1.ConditionTrue,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			template := s.createTemplate("defaults", documents(slices.Concat(good, []string{failingObject})...),
				func(template *v1alpha1.NamespaceTemplate) {
					template.Spec.FailurePolicy = policy
				})
			ns := s.createNamespace("a")
			s.waitPresent(ns, documents(good...))
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.Equal(c, want, condition.Status)
				assert.Contains(c, condition.Message, "resourcequota/bad")
				assert.Contains(c, condition.Message, rejection)
			})
			s.waitEvent(ns, corev1.EventTypeWarning, "ObjectFailed", "resourcequota/bad")
			s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
				assert.Equal(c, int32(1), status.Namespaces.Failed)
				if assert.Len(c, status.Failures, 1) {
					assert.Equal(c, []string{ns.Name}, status.Failures[0].Namespaces)
					assert.Contains(c, status.Failures[0].Message, rejection)
				}
			})
			require.Equal(t, 9, s.countWrites(ns)["patch configmaps"],
				"valid objects must be written once, however often the invalid one is retried")

			s.updateTemplate(template, withObjects(t, documents(good...)))
			s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
				assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, status.Namespaces)
				assert.Empty(c, status.Failures)
			})
			s.waitPopulated(ns)
		})
	}
}

// An object that admission denies is applied as soon as admission allows it.
func TestObjectDeniedByAdmissionIsRetried(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	policy := strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: SCOPE
spec:
  matchConstraints:
    namespaceSelector:
      matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [nstpl-trial]}]
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE]}
  validations:
  - {expression: "object.metadata.name != 'SCOPE-forbidden'", message: this ConfigMap is forbidden}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: SCOPE
spec:
  policyName: SCOPE
  validationActions: [Deny]
`, "SCOPE", s.id)
	s.applyYAML(policy)
	forbidden := configMap(s.name("forbidden"), "v")
	probe := parseYAML(t, forbidden)[0]
	probe.SetNamespace("default")
	s.eventually(func(c *assert.CollectT) {
		err := s.client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
		assert.ErrorContains(c, err, "this ConfigMap is forbidden")
	})

	s.createTemplate("defaults", documents(configMap("good", "v"), forbidden))
	ns := s.createNamespace("a")
	s.waitPresent(ns, configMap("good", "v"))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, "this ConfigMap is forbidden")
	})

	s.deleteYAML(policy)
	s.waitPopulated(ns)
	s.waitPresent(ns, forbidden)
}

// If two templates declare an object, the template with the later name is applied until it is deleted.
func TestObjectDeclaredTwiceComesFromTheLaterTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	earlier := s.createTemplate("a", documents(configMap("settings", "a"), configMap("only-a", "a")))
	later := s.createTemplate("b", documents(configMap("settings", "b"), configMap("only-b", "b")))
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, documents(configMap("settings", "b"), configMap("only-a", "a"), configMap("only-b", "b")))
	require.Equal(t, 3, s.countWrites(ns)["patch configmaps"])
	s.waitEvent(ns, corev1.EventTypeWarning, "DeclaredTwice", "configmap/settings")
	for _, template := range []*v1alpha1.NamespaceTemplate{earlier, later} {
		s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			message := templateCondition(status, v1alpha1.TemplatePopulated).Message
			assert.Contains(c, message,
				fmt.Sprintf("configmap/settings: declared by templates %s and %s", earlier.Name, later.Name))
		})
	}

	uid := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0]).GetUID()
	s.delete(later)
	s.waitPresent(ns, configMap("settings", "a"))
	stored := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])
	require.Equal(t, uid, stored.GetUID(), "the object must be taken over, not created again")
	require.Equal(t, earlier.Name, stored.GetLabels()[v1alpha1.TemplateNameLabel])
	s.waitPresent(ns, configMap("only-b", "b")) // deletionPolicy is Orphan
	s.waitTemplateStatus(earlier, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.NotContains(c, templateCondition(status, v1alpha1.TemplatePopulated).Message, "declared by templates")
	})
}

func TestOverlaysFollowNamespaceLabels(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", documents(configMap("settings", "base"), configMap("extra", "base")),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Overlays = []v1alpha1.Overlay{
				{
					Name: "production", Namespaces: selectLabel("tier", "production"),
					Labels:  map[string]string{"tier": "production"},
					Patches: []v1alpha1.Patch{{Patch: configMap("settings", "production in $(NAMESPACE)")}},
				},
				{
					Name: "bare", Namespaces: selectLabel("bare", "true"),
					Patches: []v1alpha1.Patch{
						{Patch: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: extra\n$patch: delete\n"},
					},
				},
			}
		})
	plain := s.createPopulatedNamespace("plain")
	s.waitPresent(plain, documents(configMap("settings", "base"), configMap("extra", "base")))
	before := s.countWrites(plain)
	ns := s.createPopulatedNamespace("production", withLabel("tier", "production"))
	s.waitPresent(ns, configMap("settings", "production in "+ns.Name))
	require.Equal(t, "production", s.mustGet(ns, parseYAML(t, configMap("extra", ""))[0]).GetLabels()["tier"])

	s.patchNamespace(ns, `{"metadata": {"labels": {"bare": "true"}}}`)
	s.waitAbsent(ns, configMap("extra", ""))
	s.waitPresent(ns, configMap("settings", "production in "+ns.Name))

	s.patchNamespace(ns, `{"metadata": {"labels": {"bare": null, "tier": null}}}`)
	s.waitPresent(ns, documents(configMap("settings", "base"), configMap("extra", "base")))
	require.NotContains(t, s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0]).GetLabels(), "tier")
	require.Equal(t, before, s.countWrites(plain), "this namespace did not change: %s", s.outcomes(plain))
}

func TestOptedOutNamespacesAreNotChanged(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	out := func(ns *corev1.Namespace) { ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"} }
	older := s.createNamespace("older", out)
	template := s.createTemplate("defaults", configMap("settings", "v1"))
	born := s.createNamespace("born-out", out)
	ns := s.createPopulatedNamespace("a")

	// Populated objects stay and are no longer corrected after an opt-out.
	s.patchNamespace(ns, `{"metadata": {"annotations": {"policy/namespace-template-opt-out": "true"}}}`)
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) { assert.Empty(c, condition) })
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{OptedOut: 3}, status.Namespaces)
	})
	before := s.countWrites(ns)
	s.updateTemplate(template, withObjects(t, configMap("settings", "v2")))
	stored := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])
	stored.Object["data"] = map[string]any{"key": "mine"}
	require.NoError(t, s.client.Update(t.Context(), stored))
	s.waitPresent(s.createPopulatedNamespace("b"), configMap("settings", "v2"))
	s.waitPresent(ns, configMap("settings", "mine"))
	require.Equal(t, before, s.countWrites(ns))
	require.Empty(t, s.countWrites(born))
	require.Empty(t, s.countWrites(older))

	for _, ns := range []*corev1.Namespace{ns, born, older} {
		s.patchNamespace(ns, `{"metadata": {"annotations": {"policy/namespace-template-opt-out": null}}}`)
		s.waitPopulated(ns)
		s.waitPresent(ns, configMap("settings", "v2"))
	}
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 4, Updated: 4, Populated: 4}, status.Namespaces)
	})
}

// A namespace that is opted out of a template keeps the objects of that template, and the other templates populate it.
func TestNamespaceCanBeOptedOutOfOneTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	kept := s.createTemplate("kept", configMap("kept", "v1"))
	left := s.createTemplate("left", documents(configMap("left", "v1"), configMap("dropped", "v1")), deletesObjects)
	optOut := func(ns *corev1.Namespace) {
		ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: left.Name + "," + s.name("never-existed")}
	}
	born := s.createPopulatedNamespace("born", optOut)
	s.waitPresent(born, configMap("kept", "v1"))
	s.waitAbsent(born, documents(configMap("left", ""), configMap("dropped", "")))
	ns := s.createPopulatedNamespace("a")
	other := s.createPopulatedNamespace("other")

	s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.OptOutAnnotation, left.Name))
	s.waitTemplateStatus(left, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1, OptedOut: 2}, status.Namespaces)
	})
	edit := func(name string) {
		object := s.mustGet(ns, parseYAML(t, configMap(name, ""))[0])
		object.Object["data"] = map[string]any{"key": "mine"}
		require.NoError(t, s.client.Update(t.Context(), object))
	}
	edit("left")
	edit("kept")
	s.waitPresent(ns, configMap("kept", "v1"))

	// The rollout of a change does not wait for the namespaces that are opted out.
	s.updateTemplate(left, withObjects(t, configMap("left", "v2")))
	s.waitPresent(other, configMap("left", "v2"))
	s.waitAbsent(other, configMap("dropped", ""))
	s.waitTemplateStatus(left, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Len(c, status.Revisions, 1)
		assert.Equal(c, v1alpha1.RolloutComplete, status.Revisions[0].State)
	})
	s.updateTemplate(kept, withObjects(t, configMap("kept", "v2")))
	s.waitPresent(ns, documents(configMap("kept", "v2"), configMap("left", "mine"), configMap("dropped", "v1")))

	// Nor does the deletion of the template, which leaves their objects alone.
	s.patchNamespace(born, fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`, v1alpha1.OptOutAnnotation))
	s.waitPresent(born, configMap("left", "v2"))
	s.delete(left)
	s.waitDeleted(left)
	s.waitAbsent(other, configMap("left", ""))
	s.waitAbsent(born, configMap("left", ""))
	s.waitPresent(ns, documents(configMap("kept", "v2"), configMap("left", "mine"), configMap("dropped", "v1")))
}

// The default namespace is populated like any other. The namespaces of Kubernetes and of the operator, and excluded
// ones, are not.
func TestSystemNamespacesAreNotPopulated(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", configMap(s.id, "v"))
	excluded := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "excluded-by-flag"}}
	require.NoError(t, s.client.Create(t.Context(), excluded))
	like := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-like"}}
	require.NoError(t, s.client.Create(t.Context(), like))
	namespaces := map[string]bool{
		"default": true, "kube-system": false, "kube-public": false, "kube-node-lease": false,
		v1alpha1.OperatorNamespace: false, v1alpha1.TrialNamespace: false, excluded.Name: false, like.Name: true,
	}
	for name := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, testLabel, s.id))
	}
	s.createPopulatedNamespace("marker")
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 3, Updated: 3, Populated: 3}, status.Namespaces)
	})
	for name, populated := range namespaces {
		_, err := s.get(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			parseYAML(t, configMap(s.id, ""))[0])
		require.Equal(t, populated, !apierrors.IsNotFound(err), "%s: %v", name, err)
	}
	// The plugin does not know the flags of the operator.
	s.waitCondition(excluded, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Equal(c, populate.ConditionExcluded, condition.Reason)
		assert.Equal(c, "the operator excludes the namespace (flag --exclude-namespaces)", condition.Message)
	})
	s.patchNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		fmt.Sprintf(`{"metadata": {"labels": {%q: null}}}`, testLabel))
}

// A template without objects costs no write in a namespace that another template populates, and neither does its
// deletion.
func TestTemplatesWithoutObjectsWriteNothing(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	populating := s.createTemplate("m", configMap("a", "v"))
	ns := s.createPopulatedNamespace("n")
	position := s.auditPosition()
	for _, short := range []string{"a", "z"} {
		template := s.createTemplate(short, "")
		s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			assert.EqualValues(c, 1, status.Namespaces.Populated)
		})
		require.NoError(t, s.client.Delete(t.Context(), template))
		s.waitDeleted(template)
	}
	// The next write of the operator shows that it has reconciled the namespace meanwhile.
	s.updateTemplate(populating, withObjects(t, configMap("a", "changed")))
	s.waitPresent(ns, configMap("a", "changed"))
	require.Equal(t, map[string]int{"patch configmaps": 1}, audit.Count(s.writesSince(position,
		func(r request) bool { return r.ObjectRef.Namespace == ns.Name })))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, "1 object of "+populating.Name, condition.Message)
	})
}
