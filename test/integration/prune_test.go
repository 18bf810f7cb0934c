package integration_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/test/marks"
)

// createForeignObjects creates objects that look like the template's but were not created by the operator. It fails the
// test at its end if one of them has changed.
func createForeignObjects(s *testScope, ns *corev1.Namespace, template string) {
	s.t.Helper()
	var all []client.Object
	for i, object := range parseYAML(s.t, documents(
		configMap("theirs", "x"), configMap("theirs-labelled", "x"), configMap("theirs-with-books", "x"),
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: theirs-labelled}\n",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: theirs-labelled}\n",
	)) {
		object.SetNamespace(ns.Name)
		if i > 0 {
			object.SetLabels(map[string]string{v1alpha1.TemplateNameLabel: template})
		}
		if object.GetName() == "theirs-with-books" {
			object.SetAnnotations(map[string]string{v1alpha1.HashAnnotation: "0123456789abcdef"})
		}
		require.NoError(s.t, s.client.Create(s.t.Context(), object))
		all = append(all, object)
	}
	// An object that another client creates with the operator's field manager belongs to that client too.
	update := parseYAML(s.t, configMap("theirs-by-our-name", "x"))[0]
	update.SetNamespace(ns.Name)
	update.SetLabels(map[string]string{v1alpha1.TemplateNameLabel: template})
	require.NoError(s.t, s.client.Create(s.t.Context(), update, client.FieldOwner(v1alpha1.FieldManager)))
	all = append(all, update)
	s.t.Cleanup(func() {
		for _, object := range all {
			found := object.DeepCopyObject().(client.Object)
			if assert.NoError(s.t, s.client.Get(context.Background(), client.ObjectKeyFromObject(object), found)) {
				assert.Equal(s.t, object.GetUID(), found.GetUID(), object.GetName())
				assert.Equal(s.t, object.GetResourceVersion(), found.GetResourceVersion(), object.GetName())
			}
		}
	})
}

func TestObjectsNoLongerDeclaredAreDeleted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: reader\nrules:\n- {apiGroups: [\"\"], resources: [pods], verbs: [get]}\n"
	template := s.createTemplate("defaults", documents(configMap("keep", "v"), configMap("drop", "v"), role))
	ns := s.createPopulatedNamespace("a")
	createForeignObjects(s, ns, template.Name)

	s.updateTemplate(template, withObjects(t, documents(configMap("keep", "v"), role)))
	s.waitAbsent(ns, configMap("drop", ""))
	s.waitPresent(ns, documents(configMap("keep", "v"), role))

	// The template no longer declares any object of the kind Role.
	s.updateTemplate(template, withObjects(t, configMap("keep", "v")))
	s.waitAbsent(ns, role)
	s.waitPresent(ns, configMap("keep", "v"))

	// The template no longer declares any object.
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Templates = []runtime.RawExtension{}
	})
	s.waitAbsent(ns, configMap("keep", ""))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, "0 objects", condition.Message)
	})
	require.Equal(t, map[string]int{
		"patch configmaps": 2, "patch roles": 1, "delete configmaps": 2, "delete roles": 1,
		"patch namespaces/status": 4,
	}, s.countWrites(ns), s.outcomes(ns))
}

// When a template declares another name, the object of the old name is deleted.
func TestRenamedObjectIsReplaced(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", configMap("$(NAMESPACE)-v1", "v"))
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, configMap(ns.Name+"-v1", "v"))
	s.updateTemplate(template, withObjects(t, configMap("$(NAMESPACE)-v2", "v")))
	s.waitPresent(ns, configMap(ns.Name+"-v2", "v"))
	s.waitAbsent(ns, configMap(ns.Name+"-v1", ""))
}

// Objects of a template that is deleted, disabled or no longer selects the namespace are deleted only with
// deletionPolicy Delete.
func TestDeletionPolicyDecidesAboutObjectsOfWithdrawnTemplates(t *testing.T) {
	t.Parallel()
	ways := map[string]func(s *testScope, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace){
		"deleted": func(s *testScope, template *v1alpha1.NamespaceTemplate, _ *corev1.Namespace) {
			s.delete(template)
			s.waitDeleted(template)
		},
		"off": func(s *testScope, template *v1alpha1.NamespaceTemplate, _ *corev1.Namespace) {
			s.updateTemplate(template, disablesTemplate)
		},
		"relabelled": func(s *testScope, _ *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) {
			s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"labels": {%q: "nowhere"}}}`, testLabel))
		},
		"reselecting": func(s *testScope, template *v1alpha1.NamespaceTemplate, _ *corev1.Namespace) {
			s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.Namespaces = selectLabel(testLabel, s.name("elsewhere"))
			})
		},
	}
	for way, withdraw := range ways {
		t.Run(way+"/delete", func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			template := s.createTemplate("defaults", policyKinds, deletesObjects)
			ns := s.createPopulatedNamespace("a")
			createForeignObjects(s, ns, template.Name)
			withdraw(s, template, ns)
			s.waitAbsent(ns, policyKinds)
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.Empty(c, condition)
			})
		})
		t.Run(way+"/orphan", func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			template := s.createTemplate("defaults", policyKinds)
			ns := s.createPopulatedNamespace("a")
			createForeignObjects(s, ns, template.Name)
			withdraw(s, template, ns)
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				for _, finding := range populate.ReportedFindings(&condition) { // Roles and RoleBindings still grant rights
					assert.Equal(c, populate.FindingGrantStays, finding.Reason)
				}
				assert.NotContains(c, condition.Message, "objects of")
			})
			for _, object := range parseYAML(t, storedPolicyKinds(ns.Name)) {
				require.Empty(t, differences(object.Object, s.mustGet(ns, object).Object))
			}
		})
	}
}

// A template that was disabled and is enabled again still owns its objects.
func TestReenabledTemplateOwnsItsObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", documents(configMap("keep", "v"), configMap("drop", "v")))
	ns := s.createPopulatedNamespace("a")
	s.updateTemplate(template, disablesTemplate)
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) { assert.Empty(c, condition) })
	s.updateTemplate(template, withObjects(t, configMap("keep", "v")))
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) { template.Annotations = nil })
	s.waitAbsent(ns, configMap("drop", ""))
	s.waitPresent(ns, configMap("keep", "v"))
	require.Equal(t, 2, s.countWrites(ns)["patch configmaps"])
}

// A namespace that has opted out keeps its objects, and does not prevent the deletion of a template with deletionPolicy
// Delete.
func TestDeletedTemplateKeepsObjectsOfOptedOutNamespaces(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", configMap("settings", "v"), deletesObjects)
	out, in := s.createPopulatedNamespace("out"), s.createPopulatedNamespace("in")
	s.patchNamespace(out, `{"metadata": {"annotations": {"policy/namespace-template-opt-out": "true"}}}`)
	s.waitCondition(out, func(c *assert.CollectT, condition corev1.NamespaceCondition) { assert.Empty(c, condition) })
	s.delete(template)
	s.waitDeleted(template)
	s.waitAbsent(in, configMap("settings", ""))
	s.waitPresent(out, configMap("settings", "v"))
}

// The operator adds and removes its finalizer when the deletionPolicy changes.
func TestFinalizerFollowsDeletionPolicy(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", configMap("settings", "v"), deletesObjects)
	finalizers := func(want ...string) {
		s.eventually(func(c *assert.CollectT) {
			found := &v1alpha1.NamespaceTemplate{}
			assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), found))
			assert.ElementsMatch(c, want, found.Finalizers)
		})
	}
	finalizers(v1alpha1.DeletionFinalizer)
	// As kubectl replace does.
	require.NoError(t, s.client.Patch(t.Context(), template.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))))
	finalizers(v1alpha1.DeletionFinalizer)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
	})
	finalizers()
	s.updateTemplate(template, deletesObjects)
	finalizers(v1alpha1.DeletionFinalizer)
}

// Objects that existed before the template are changed to match its declaration, and never deleted.
func TestAdoptedObjectsAreNeverDeleted(t *testing.T) {
	t.Parallel()
	const (
		fixed   = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fixed, annotations: {policy/replace: \"true\"}}\nimmutable: true\ndata: {key: VALUE}\n"
		viewers = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: viewers}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n"
	)
	before, after := strings.ReplaceAll(fixed, "VALUE", "v"), strings.ReplaceAll(fixed, "VALUE", "other")
	for creator, options := range map[string]client.CreateOption{
		"with the same content": client.FieldOwner("kubectl-create"),
		"by our name":           client.FieldOwner(v1alpha1.FieldManager),
	} {
		t.Run(creator, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			ns := s.createNamespace("a")
			var theirs []client.Object
			for _, object := range parseYAML(t,
				documents(configMap("same", "v"), configMap("different", "theirs"), before, viewers)) {
				object.SetNamespace(ns.Name)
				require.NoError(t, s.client.Create(t.Context(), object, options))
				theirs = append(theirs, object)
			}
			template := s.createTemplate("defaults",
				documents(configMap("same", "v"), configMap("different", "ours"), before, viewers), deletesObjects)
			s.waitPopulated(ns)
			s.waitPresent(ns, documents(configMap("same", "v"), configMap("different", "ours"), before, viewers))

			// An object that the operator had created would be replaced here.
			s.updateTemplate(template,
				withObjects(t, documents(configMap("same", "v"), configMap("different", "ours"), after, viewers)))
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.Equal(c, corev1.ConditionFalse, condition.Status)
				assert.Contains(c, condition.Message, "existed before nstpl managed it: delete it yourself")
			})
			s.updateTemplate(template, withObjects(t, configMap("same", "v")))
			s.waitPopulated(ns)
			s.delete(template)
			s.waitDeleted(template)
			for _, object := range theirs {
				require.Equal(t, object.GetUID(), s.mustGet(ns, object).GetUID(), object.GetName())
			}
			require.Zero(t, s.countWrites(ns)["delete configmaps"]+s.countWrites(ns)["delete rolebindings"])
		})
	}
}

// An adopted RoleBinding is replaced when its declared roleRef changes, because it would otherwise keep granting the
// old role.
func TestAdoptedBindingIsReplacedWhenItsRoleRefChanges(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	edit, view := bindingToClusterRole("team-"+reboundName, "edit", "team"),
		bindingToClusterRole("team-"+reboundName, "view", "team")
	theirs := parseYAML(t, edit)[0]
	theirs.SetNamespace(ns.Name)
	require.NoError(t, s.client.Create(t.Context(), theirs))
	template := s.createTemplate("defaults", edit)
	s.waitPopulated(ns)
	require.Equal(t, "true", s.mustGet(ns, theirs).GetAnnotations()[v1alpha1.AdoptedAnnotation])

	s.updateTemplate(template, withObjects(t, view))
	s.waitPresent(ns, view)
	s.waitPopulated(ns)
	require.NotContains(t, s.mustGet(ns, theirs).GetAnnotations(), v1alpha1.AdoptedAnnotation)
}

// An adopted RoleBinding whose declaration has no subjects grants nothing, also after a person has added a subject.
func TestAdoptedBindingWithoutSubjectsGrantsNothing(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const viewers = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: viewers}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n"
	ns := s.createNamespace("a")
	theirs := parseYAML(t, bindingToClusterRole("viewers", "view", "team"))[0]
	theirs.SetNamespace(ns.Name)
	subjects := theirs.Object["subjects"]
	require.NoError(t, s.client.Create(t.Context(), theirs))
	s.createTemplate("defaults", viewers)
	s.waitPopulated(ns)
	adopted := s.mustGet(ns, theirs)
	require.NotContains(t, adopted.Object, "subjects")
	adopted.Object["subjects"] = subjects
	require.NoError(t, s.client.Update(t.Context(), adopted))
	s.eventually(func(c *assert.CollectT) { assert.NotContains(c, s.mustGet(ns, theirs).Object, "subjects") })
}

// The ServiceAccount "default", which Kubernetes creates without managedFields, is adopted like other existing objects.
func TestDefaultServiceAccountIsAdopted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, annotations: {example.com/team: a}}\n"
	ns := s.createNamespace("a")
	like := parseYAML(t, account)[0]
	s.eventually(func(c *assert.CollectT) {
		_, err := s.get(ns, like)
		assert.NoError(c, err)
	})
	before := s.mustGet(ns, like)
	template := s.createTemplate("defaults", account)
	s.waitPopulated(ns)
	require.Equal(t, "true", s.mustGet(ns, like).GetAnnotations()[v1alpha1.AdoptedAnnotation])
	s.updateTemplate(template, withObjects(t, configMap("other", "v")))
	s.waitPresent(ns, configMap("other", "v"))
	require.Equal(t, before.GetUID(), s.mustGet(ns, like).GetUID())
}

// An adopted object that was deleted and created again by the operator belongs to the operator.
func TestRecreatedObjectBelongsToTheOperator(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	theirs := parseYAML(t, configMap("settings", "theirs"))[0]
	theirs.SetNamespace(ns.Name)
	require.NoError(t, s.client.Create(t.Context(), theirs))
	template := s.createTemplate("defaults", configMap("settings", "ours"))
	s.waitPresent(ns, configMap("settings", "ours"))
	s.delete(theirs)
	s.waitPresent(ns, configMap("settings", "ours"))
	require.NotContains(t, s.mustGet(ns, theirs).GetAnnotations(), v1alpha1.AdoptedAnnotation)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Templates = []runtime.RawExtension{}
	})
	s.waitAbsent(ns, configMap("settings", ""))
}

// A template that cannot be rendered reports that, and its last accepted revision stays in force.
func TestBrokenTemplatePrunesNothing(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.createTemplate("defaults", documents(configMap("keep", "v"), configMap("drop", "v")))
	ns := s.createPopulatedNamespace("a")
	for what, broken := range map[string]func(*v1alpha1.NamespaceTemplate){
		"spec.templates[0]: kind is missing": withObjects(t, "apiVersion: v1\nkind: \"\"\nmetadata: {name: x}\n"),
		"is declared twice":                  withObjects(t, documents(configMap("drop", "v"), configMap("drop", "w"))),
		"must not be set": withObjects(t,
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: drop, namespace: kube-system}\n"),
		"is not namespace-scoped": withObjects(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n"),
		"overlay production": func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Overlays = []v1alpha1.Overlay{{
				Name: "production", Namespaces: selectLabel("tier", "production"),
				Patches: []v1alpha1.Patch{{Patch: configMap("nowhere", "v")}},
			}}
		},
	} {
		s.updateTemplateUnvetted(template, broken)
		s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			accepted := templateCondition(status, v1alpha1.TemplateAccepted)
			assert.Equal(c, metav1.ConditionFalse, accepted.Status)
			assert.Contains(c, accepted.Message, what)
			assert.Equal(c, metav1.ConditionFalse, templateCondition(status, v1alpha1.ConditionReady).Status)
		})
		s.waitPresent(ns, documents(configMap("keep", "v"), configMap("drop", "v")))
		s.waitPopulated(ns)
		s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Overlays, template.Spec.Templates = nil,
				rawObjects(t, documents(configMap("keep", "v"), configMap("drop", "v")))
		})
		s.waitPopulated(ns)
	}
	require.Equal(t, 2, s.countWrites(ns)["patch configmaps"])
	require.Zero(t, s.countWrites(ns)["delete configmaps"])
}

// An object that is no longer declared stays while the object that replaces it cannot be applied.
func TestFailedReplacementKeepsThePreviousObject(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	quota := func(name, pods string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: %s\nspec:\n  hard: {pods: %q}\n",
			name, pods)
	}
	template := s.createTemplate("defaults", quota("old", "1"))
	ns := s.createPopulatedNamespace("a")
	s.updateTemplate(template, withObjects(t, documents(quota("new", "2"), failingObject)))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
	})
	s.waitPresent(ns, quota("old", "1"))
	s.updateTemplate(template, withObjects(t, quota("new", "2")))
	s.waitPresent(ns, quota("new", "2"))
	s.waitAbsent(ns, quota("old", ""))
}

// An object of another template does not get deleted with a template whose label a user put on it.
func TestRelabeledObjectSurvivesDeletionOfTheOtherTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("a", configMap("settings", "a"))
	other := s.createTemplate("b", configMap("more", "b"), deletesObjects)
	ns := s.createPopulatedNamespace("a")
	settings := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])
	require.NoError(t,
		s.client.Patch(t.Context(), settings.DeepCopy(),
			mergePatch(fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.TemplateNameLabel, other.Name))))
	s.delete(other)
	s.waitDeleted(other)
	s.waitAbsent(ns, configMap("more", ""))
	s.eventually(func(c *assert.CollectT) {
		found, err := s.get(ns, settings)
		assert.NoError(c, err)
		assert.Equal(c, settings.GetUID(), found.GetUID())
		assert.Equal(c, s.name("a"), found.GetLabels()[v1alpha1.TemplateNameLabel])
	})
}

// A populated object that was deleted is created again when its finalizer is removed.
func TestDeletedObjectIsRecreatedOnceItsFinalizerIsRemoved(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("settings", "v"))
	ns := s.createPopulatedNamespace("a")
	settings := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])
	release := s.addFinalizer(ns, settings)
	s.delete(settings)
	release()
	s.eventually(func(c *assert.CollectT) {
		found, err := s.get(ns, settings)
		assert.NoError(c, err)
		assert.NotEqual(c, settings.GetUID(), found.GetUID())
		assert.Empty(c, found.GetDeletionTimestamp())
	})
	s.waitPresent(ns, configMap("settings", "v"))
}

// A deleted template with deletionPolicy Delete exists until all its objects are deleted.
func TestDeletedTemplateWaitsForItsObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", documents(configMap("held", "v"), configMap("free", "v")), deletesObjects)
	ns := s.createPopulatedNamespace("a")
	held := parseYAML(t, configMap("held", ""))[0]
	release := s.addFinalizer(ns, held)
	s.delete(template)
	s.waitAbsent(ns, configMap("free", ""))
	s.eventually(func(c *assert.CollectT) {
		found, err := s.get(ns, held)
		assert.NoError(c, err)
		assert.NotEmpty(c, found.GetDeletionTimestamp())
	})
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
	release()
	s.waitDeleted(template)
	s.waitAbsent(ns, configMap("held", ""))
}

// A template is not gone before the writes that began before its deletion have ended, and what they create is deleted.
func TestDeletedTemplateWaitsForWritesThatHaveBegun(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowClusterWithoutOperator(t)
	through := newProxy(t, cluster, "slow")
	require.NoError(t, cluster.startOperator(t.Context(), through.kubeconfig))
	s := newScope(t, cluster)
	ns := s.preexistingNamespace()
	arrived, release := through.holdWrites("/namespaces/" + ns.Name + "/configmaps/late")
	t.Cleanup(release)
	s.applyLabels(ns)
	template := s.createTemplate("defaults", configMap("late", "v"), deletesObjects)
	later := s.createTemplate("later", configMap("other", "v"), deletesObjects, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel("none", "none")
	})
	waitArrived(t, arrived)
	s.delete(template)
	s.delete(later)
	s.waitDeleted(later) // the operator has been told of the deletion before
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
	release()
	s.waitDeleted(template)
	all := &corev1.ConfigMapList{}
	require.NoError(t, s.client.List(t.Context(), all, client.MatchingLabels{v1alpha1.TemplateNameLabel: template.Name}))
	require.Empty(t, all.Items)
}

// A terminating namespace does not delay the deletion of a template, and nothing is created in it.
func TestTerminatingNamespaceDoesNotBlockTemplateDeletion(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", documents(configMap("settings", "v"), configMap("held", "v")),
		deletesObjects)
	ns := s.createPopulatedNamespace("a")
	release := s.addFinalizer(ns, parseYAML(t, configMap("held", ""))[0])
	s.delete(ns)
	s.waitAbsent(ns, configMap("settings", ""))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Zero(c, status.Namespaces)
		assert.Empty(c, status.Failures)
	})
	s.delete(template)
	s.waitDeleted(template)
	release()
	s.waitDeleted(ns)
}

// A user who constantly changes objects cannot prevent the operator from changing and deleting them.
func TestConstantlyChangedObjectsAreAppliedAndPruned(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: viewers}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n" +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: viewers}]\n"
	template := s.createTemplate("defaults", documents(configMap("settings", "v1"), configMap("extra", "v1"), binding))
	ns := s.createPopulatedNamespace("a")
	var writers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	written := map[string]*atomic.Int64{}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "settings"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "extra"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "viewers"}},
	} {
		count := &atomic.Int64{}
		written[object.GetName()] = count
		writers.Go(func() {
			for ctx.Err() == nil {
				patch := fmt.Appendf(nil, `{"metadata": {"labels": {"counter": "%d"}}}`, count.Load())
				if err := s.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
					return // it was deleted
				}
				count.Add(1)
			}
		})
	}
	t.Cleanup(func() { stop(); writers.Wait() })
	s.eventually(func(c *assert.CollectT) {
		for name, count := range written {
			assert.Greater(c, count.Load(), int64(10), name)
		}
	})
	s.updateTemplate(template, withObjects(t, configMap("settings", "v2")))
	s.waitPresent(ns, configMap("settings", "v2"))
	s.waitAbsent(ns, documents(configMap("extra", "v1"), binding))
}

// patchAllTheTime patches a namespace, with another number each time, from now until the end of the test.
func patchAllTheTime(s *testScope, ns *corev1.Namespace, format string) {
	s.t.Helper()
	var writers sync.WaitGroup
	ctx, stop := context.WithCancel(s.t.Context())
	s.t.Cleanup(func() { stop(); writers.Wait() })
	var written atomic.Int64
	for range 8 {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
		writers.Go(func() {
			for ctx.Err() == nil {
				patch := fmt.Appendf(nil, format, written.Add(1))
				if err := s.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil && ctx.Err() == nil {
					s.t.Error(err)
				}
			}
		})
	}
	s.eventually(func(c *assert.CollectT) { assert.Greater(c, written.Load(), int64(100)) })
}

// Users who constantly change their namespace neither keep a grant nor labels that its templates take away or change,
// nor hide what is not as declared.
func TestAConstantlyChangedNamespaceKeepsNothing(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	binding := bindingToClusterRole("viewers", "view", "viewers")
	key := s.id + "/tier"
	tier := func(value string) func(*v1alpha1.NamespaceTemplate) {
		return func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{key: value}}
		}
	}
	template := s.createTemplate("defaults", documents(configMap("a", "v"), binding), reportsDrift, tier("one"))
	ns := s.createPopulatedNamespace("a")
	patchAllTheTime(s, ns, `{"metadata": {"annotations": {"counter": "%d"}}}`)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		withObjects(t, configMap("a", "v"))(template)
		tier("two")(template)
	})
	s.waitAbsent(ns, binding)
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status)
		assert.Contains(c, condition.Message, "1 object of ")
	})
	found := &corev1.Namespace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
	require.Equal(t, "two", found.Labels[key])
}

// Users who constantly change one label that a template declares do not keep the others.
func TestAConstantlyChangedLabelKeepsNoOther(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	fought, revoked, removed := s.id+"/fought", s.id+"/revoked", s.id+"/removed"
	template := s.createTemplate("defaults", "", labelsNamespaces(fought, "x", revoked, "true", removed, "x"))
	ns := s.createPopulatedNamespace("a")
	waitLabels(s, ns, fought, "x", revoked, "true", removed, "x")
	patchAllTheTime(s, ns, `{"metadata": {"labels": {"`+fought+`": "%d"}}}`)
	s.updateTemplate(template, labelsNamespaces(fought, "x", revoked, "false"))
	waitLabels(s, ns, revoked, "false", removed, "")
}
