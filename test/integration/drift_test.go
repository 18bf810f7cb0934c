package integration_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// foreignPatches has a merge patch for each kind of policyKinds that changes a declared field.
var foreignPatches = map[string]string{
	"NetworkPolicy":       `{"spec": {"egress": [{"ports": [{"protocol": "TCP", "port": 443}]}]}}`,
	"Role":                `{"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}`,
	"RoleBinding":         `{"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}]}`,
	"ResourceQuota":       `{"spec": {"hard": {"pods": "1000"}}}`,
	"LimitRange":          `{"spec": {"limits": []}}`,
	"ServiceAccount":      `{"automountServiceAccountToken": true}`,
	"ConfigMap":           `{"data": {"namespace": "elsewhere"}}`,
	"Secret":              `{"data": {"token": "bm9uZQ=="}}`,
	"PodDisruptionBudget": `{"spec": {"minAvailable": 0}}`,
}

// foreignWrites returns the ways in which other clients change populated objects, by name.
func foreignWrites(s *testScope) map[string]func(*unstructured.Unstructured) error {
	ctx := s.t.Context()
	patch := func(object *unstructured.Unstructured, body string, options ...client.PatchOption) error {
		return s.client.Patch(ctx, object.DeepCopy(), mergePatch(body), options...)
	}
	return map[string]func(*unstructured.Unstructured) error{
		"patch": func(object *unstructured.Unstructured) error {
			return patch(object, foreignPatches[object.GetKind()], client.FieldOwner("kubectl-patch"))
		},
		"update": func(object *unstructured.Unstructured) error {
			// the quota controller also updates ResourceQuotas
			return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				read := object.DeepCopy()
				if err := s.client.Get(ctx, client.ObjectKeyFromObject(object), read); err != nil {
					return err
				}
				changed, err := mergePatched(read, foreignPatches[object.GetKind()])
				if err != nil {
					return err
				}
				return s.client.Update(ctx, changed, client.FieldOwner("kubectl-edit"))
			})
		},
		"force": func(object *unstructured.Unstructured) error {
			mine, err := mergePatched(&unstructured.Unstructured{Object: map[string]any{}},
				foreignPatches[object.GetKind()])
			if err != nil {
				return err
			}
			mine.SetGroupVersionKind(object.GroupVersionKind())
			mine.SetNamespace(object.GetNamespace())
			mine.SetName(object.GetName())
			if roleRef, ok := object.Object["roleRef"]; ok {
				mine.Object["roleRef"] = roleRef
			}
			return s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(mine), client.FieldOwner("argocd"),
				client.ForceOwnership)
		},
		"remove the label": func(object *unstructured.Unstructured) error {
			return patch(object, `{"metadata": {"labels": {"policy/namespace-template-name": null}}}`)
		},
		"change the label": func(object *unstructured.Unstructured) error {
			return patch(object, `{"metadata": {"labels": {"policy/namespace-template-name": "mine"}}}`)
		},
		"remove all labels": func(object *unstructured.Unstructured) error {
			return patch(object, `{"metadata": {"labels": null}}`)
		},
		"change the hash": func(object *unstructured.Unstructured) error {
			return patch(object, `{"metadata": {"annotations": {"policy.nstpl.dev/applied-hash": "0123456789abcdef"}}}`)
		},
		"remove the hash": func(object *unstructured.Unstructured) error {
			return patch(object, `{"metadata": {"annotations": {"policy.nstpl.dev/applied-hash": null}}}`)
		},
		"forget the managers": func(object *unstructured.Unstructured) error {
			return patch(object, `{"metadata": {"managedFields": [{}]}}`)
		},
		"delete": func(object *unstructured.Unstructured) error {
			return s.client.Delete(ctx, object)
		},
	}
}

func mergePatched(object *unstructured.Unstructured, patch string) (*unstructured.Unstructured, error) {
	change := &unstructured.Unstructured{}
	if err := change.UnmarshalJSON([]byte(`{"apiVersion": "v1", "kind": "Patch", ` + patch[1:])); err != nil {
		return nil, err
	}
	merged := object.DeepCopy()
	for field, value := range change.Object {
		if field == "apiVersion" || field == "kind" {
			continue
		}
		before, isMap := merged.Object[field].(map[string]any)
		after, staysMap := value.(map[string]any)
		if !isMap || !staysMap {
			merged.Object[field] = value
			continue
		}
		maps.Copy(before, after)
	}
	return merged, nil
}

// A change of a populated object is corrected, however it was made.
func TestDriftIsCorrected(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	for _, object := range parseYAML(t, policyKinds) {
		template := s.newTemplate(strings.ToLower(object.GetKind()), "")
		template.Spec.Namespaces = selectLabel(kindLabel, object.GetKind())
		data, err := object.MarshalJSON()
		require.NoError(t, err)
		template.Spec.Templates = []runtime.RawExtension{{Raw: data}}
		require.NoError(t, s.client.Create(t.Context(), template))
		s.waitTemplateObserved(template)
	}
	ways := slices.Sorted(maps.Keys(foreignWrites(s)))
	for _, object := range parseYAML(t, policyKinds) {
		for _, way := range ways {
			t.Run(object.GetKind()+"/"+way, func(t *testing.T) { testDriftIsCorrected(t, object, way) })
		}
	}
}

// kindLabel is the label of a namespace that selects one object of policyKinds.
const kindLabel = "kind"

func testDriftIsCorrected(t *testing.T, object *unstructured.Unstructured, way string) {
	t.Helper()
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createPopulatedNamespace("a", withLabel(kindLabel, object.GetKind()))
	before := s.mustGet(ns, object)
	require.NoError(t, foreignWrites(s)[way](before))
	s.eventually(func(c *assert.CollectT) {
		after, err := s.get(ns, object)
		if !assert.NoError(c, err) {
			return
		}
		for _, declared := range parseYAML(t, storedPolicyKinds(ns.Name)) {
			if declared.GetKind() == object.GetKind() {
				assert.Empty(c, differences(declared.Object, after.Object))
			}
		}
		assert.Equal(c, before.GetLabels(), after.GetLabels())
		assert.Equal(c, before.GetAnnotations()[v1alpha1.HashAnnotation],
			after.GetAnnotations()[v1alpha1.HashAnnotation])
		if way == "delete" {
			assert.NotEqual(c, before.GetUID(), after.GetUID())
		} else {
			assert.Equal(c, before.GetUID(), after.GetUID())
		}
	})
	if way != "forget the managers" { // then the operator cannot know that the object was populated
		s.waitEvent(ns, corev1.EventTypeNormal, "DriftCorrected", "was applied again")
	}
}

// The watch of an operator that was suspended while the API server restarted is too old, so the operator lists again. It
// corrects what changed meanwhile.
func TestDriftDuringAnExpiredWatchIsCorrected(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, newTestCluster(t))
	declared := documents(configMap("edited", "v"), configMap("deleted", "v"), configMap("same", "v"))
	s.createTemplate("defaults", declared)
	ns := s.createPopulatedNamespace("a")
	same := s.mustGet(ns, parseYAML(t, configMap("same", ""))[0])

	require.NoError(t, s.operator.Signal(syscall.SIGSTOP))
	edited := s.mustGet(ns, parseYAML(t, configMap("edited", ""))[0])
	edited.Object["data"] = map[string]any{"key": "theirs"}
	require.NoError(t, s.client.Update(t.Context(), edited))
	s.delete(s.mustGet(ns, parseYAML(t, configMap("deleted", ""))[0]))
	require.NoError(t, s.controlPlane.Restart(t.Context(), "kube-apiserver"))
	require.NoError(t, s.operator.Signal(syscall.SIGCONT))

	s.waitPresent(ns, declared)
	require.Equal(t, same.GetResourceVersion(),
		s.mustGet(ns, parseYAML(t, configMap("same", ""))[0]).GetResourceVersion(), "it is as declared")
}

// A correction writes only the object. The namespace's condition does not change.
func TestDriftCorrectionIsOneWrite(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", documents(configMap("settings", "v"), configMap("more", "v")))
	ns := s.createPopulatedNamespace("a")
	for _, way := range []string{"patch", "delete"} {
		settings := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])
		if way == "patch" {
			settings.Object["data"] = map[string]any{"key": "theirs"}
			require.NoError(t, s.client.Update(t.Context(), settings))
		} else {
			s.delete(settings)
		}
		s.waitPresent(ns, configMap("settings", "v"))
	}
	waitQuiet(s, configMap("settings", "v"))
	require.Equal(t, map[string]int{"patch configmaps": 4, "patch namespaces/status": 1}, s.countWrites(ns))
}

// What a person changed or deleted under driftPolicy Report stays so until a revision changes that object. An Event then
// says what was overwritten.
func TestARevisionOverwritesReportedDriftOnlyOfObjectsThatItChanges(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	objects := func(changed, deleted, other string) string {
		return documents(configMap("changed", changed), configMap("deleted", deleted), configMap("other", other))
	}
	template := s.createTemplate("t", objects("1", "1", "1"), reportsDrift)
	ns := s.createPopulatedNamespace("a")
	s.deleteIn(ns, configMap("deleted", ""))
	require.NoError(t, s.patchLike(s.client, ns, configMap("changed", ""), `{"data": {"key": "theirs"}}`))
	drifted := func() {
		s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
			assert.Contains(c, condition.Message, "configmap/changed: drifted: ")
			assert.Contains(c, condition.Message, "configmap/deleted: drifted: ")
		})
	}
	drifted()
	s.updateTemplate(template, withObjects(t, objects("1", "1", "2")))
	s.waitPresent(ns, configMap("other", "2"))
	drifted()
	s.waitPresent(ns, configMap("changed", "theirs"))
	s.waitAbsent(ns, configMap("deleted", ""))
	s.updateTemplate(template, withObjects(t, objects("3", "3", "2")))
	s.waitPresent(ns, documents(configMap("changed", "3"), configMap("deleted", "3")))
	s.waitEvent(ns, corev1.EventTypeWarning, "DriftOverwritten", "configmap/changed")
	s.waitEvent(ns, corev1.EventTypeWarning, "DriftOverwritten", "another client deleted it")
	s.deleteIn(ns, configMap("deleted", ""))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "configmap/deleted: drifted: ")
		assert.NotContains(c, condition.Message, "configmap/changed")
	})
}

// waitQuiet waits until the operator has handled all earlier changes of objects like these. It deletes such objects in
// another namespace and waits until they are created again: the watch delivers these deletions after the earlier
// changes.
func waitQuiet(s *testScope, like string) {
	s.t.Helper()
	marker := s.createPopulatedNamespace(fmt.Sprintf("marker-%d", time.Now().UnixNano()))
	for _, object := range parseYAML(s.t, like) {
		before := s.mustGet(marker, object)
		s.delete(before)
		s.eventually(func(c *assert.CollectT) {
			after, err := s.get(marker, object)
			assert.NoError(c, err)
			assert.NotEqual(c, before.GetUID(), after.GetUID())
		})
	}
}

// The operator does not change fields that no template declares.
func TestUndeclaredFieldsAreNotChanged(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", policyKinds)
	ns := s.createPopulatedNamespace("a")
	before := s.countWrites(ns)
	additions := map[string]string{
		"ResourceQuota":       `{"spec": {"hard": {"services": "3"}}}`,
		"ServiceAccount":      `{"imagePullSecrets": [{"name": "mine"}]}`,
		"ConfigMap":           `{"data": {"mine": "too"}, "metadata": {"labels": {"mine": "too"}, "finalizers": ["example.com/mine"]}}`,
		"Secret":              `{"data": {"mine": "bWluZQ=="}}`,
		"PodDisruptionBudget": `{"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}`,
	}
	for _, object := range parseYAML(t, policyKinds) {
		addition, ok := additions[object.GetKind()]
		if !ok {
			addition = `{"metadata": {"annotations": {"mine": "too"}, "labels": {"mine": "too"}}}`
		}
		object.SetNamespace(ns.Name)
		require.NoError(t, s.client.Patch(t.Context(), object, mergePatch(addition)))
	}
	waitQuiet(s, policyKinds)
	require.Equal(t, before, s.countWrites(ns))
	for _, object := range parseYAML(t, storedPolicyKinds(ns.Name)) {
		require.Empty(t, differences(object.Object, s.mustGet(ns, object).Object))
	}

	// A correction of a declared field does not change them either.
	settings := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])
	require.NoError(t, unstructured.SetNestedField(settings.Object, "elsewhere", "data", "namespace"))
	require.NoError(t, s.client.Update(t.Context(), settings))
	s.waitPresent(ns, storedPolicyKinds(ns.Name))
	settings = s.mustGet(ns, settings)
	require.Contains(t, settings.Object["data"], "mine")
	require.Contains(t, settings.GetLabels(), "mine")
	settings.SetFinalizers(nil)
	require.NoError(t, s.client.Update(t.Context(), settings))
}

// The operator does not write when only the status of a ResourceQuota changes.
func TestStatusUpdatesCauseNoWrite(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata:\n  name: budget\nspec:\n  hard: {services: \"20\"}\n"
	s.createTemplate("defaults", quota)
	ns := s.createPopulatedNamespace("a")
	used := func(c *assert.CollectT) resource.Quantity {
		found := &corev1.ResourceQuota{}
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "budget"}, found))
		assert.Contains(c, found.Status.Used, corev1.ResourceServices)
		return found.Status.Used[corev1.ResourceServices]
	}
	s.eventually(func(c *assert.CollectT) { used(c) }) // services are counted only after that
	for i := range 3 {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: fmt.Sprintf("mine-%d", i)}}
		service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		require.NoError(t, s.client.Create(t.Context(), service))
	}
	s.eventually(func(c *assert.CollectT) {
		services := used(c)
		assert.Equal(c, int64(3), services.Value())
	})
	waitQuiet(s, quota)
	require.Equal(t, map[string]int{"patch resourcequotas": 1, "patch namespaces/status": 1}, s.countWrites(ns))
}

// With driftPolicy Report, drift is not corrected but reported by a condition, an Event and the template's status.
func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", documents(configMap("settings", "v"), configMap("more", "v")),
		reportsDrift)
	ns := s.createPopulatedNamespace("a")
	s.createPopulatedNamespace("b")
	settings := s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])

	t.Run("a changed object", func(t *testing.T) {
		s := s.withT(t)
		settings.Object["data"] = map[string]any{"key": "theirs"}
		require.NoError(t, s.client.Update(t.Context(), settings, client.FieldOwner("kubectl-edit")))
		s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
			assert.Equal(c, corev1.ConditionTrue, condition.Status)
			assert.Contains(c, condition.Message, "configmap/settings: drifted: data.key changed by kubectl-edit")
		})
		s.waitEvent(ns, corev1.EventTypeWarning, "Drifted", "configmap/settings")
		s.waitDriftedNamespaces(template, 1)
	})

	t.Run("a deleted object", func(t *testing.T) {
		s := s.withT(t)
		s.delete(s.mustGet(ns, parseYAML(t, configMap("more", ""))[0]))
		s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
			assert.Contains(c, condition.Message, "configmap/more: drifted: another client deleted it")
		})
		s.waitEvent(ns, corev1.EventTypeWarning, "Drifted", "configmap/more")
		s.waitDriftedNamespaces(template, 1)
		s.waitPresent(ns, configMap("settings", "theirs"))
		s.waitAbsent(ns, configMap("more", ""))
		require.Equal(t, 2, s.countWrites(ns)["patch configmaps"])
	})

	t.Run("drift is corrected after a change to driftPolicy Correct", func(t *testing.T) {
		s := s.withT(t)
		// One declared value is restored already, by another field manager.
		settings = s.mustGet(ns, settings)
		settings.Object["data"] = map[string]any{"key": "v"}
		require.NoError(t, s.client.Update(t.Context(), settings, client.FieldOwner("kubectl-edit")))
		s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.DriftPolicy = v1alpha1.DriftCorrect
		})
		s.waitPresent(ns, documents(configMap("settings", "v"), configMap("more", "v")))
		s.waitDriftedNamespaces(template, 0)
		s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
			assert.NotContains(c, condition.Message, "drifted")
		})
	})
}

// With driftPolicy Report, changes of the template are applied.
func TestReportAppliesAChangedTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", configMap("settings", "v1"), reportsDrift)
	ns := s.createPopulatedNamespace("a")
	s.updateTemplate(template, withObjects(t, documents(configMap("settings", "v2"), configMap("more", "v2"))))
	s.waitPresent(ns, documents(configMap("settings", "v2"), configMap("more", "v2")))
	s.waitDriftedNamespaces(template, 0)
}

// A user who deletes what a template has left behind changes nothing that the template finds when it declares the object
// again: it is created, and an object of the user's own is adopted and stays in the end.
func TestRemainsThatUsersDeleteAreNoDrift(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.NamespaceTemplate){
		"reports": reportsDrift, "corrects": func(*v1alpha1.NamespaceTemplate) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			template := s.createTemplate("defaults", configMap("settings", "v"), change, s.selectsClass("class", "a"))
			marker := s.createTemplate("marker", configMap("marker", "1"))
			ns := s.createPopulatedNamespace("a", withLabel("class", "a"))
			s.patchNamespace(ns, `{"metadata": {"labels": {"class": null}}}`)
			s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
				assert.Zero(c, status.Namespaces.Matched)
			})
			s.deleteIn(ns, configMap("settings", "v"))
			s.updateTemplate(marker, withObjects(t, configMap("marker", "2"))) // a pass after the deletion
			s.waitPresent(ns, configMap("marker", "2"))
			if name == "corrects" {
				s.createObjects(ns.Name, configMap("settings", "mine"))
			}
			s.patchNamespace(ns, `{"metadata": {"labels": {"class": "a"}}}`)
			s.waitPresent(ns, configMap("settings", "v"))
			s.waitDriftedNamespaces(template, 0)
			if name == "corrects" {
				s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
					deletesObjects(template)
					withObjects(t, configMap("other", "v"))(template)
				})
				s.waitPresent(ns, configMap("other", "v"))
				s.waitPopulated(ns)
				s.waitPresent(ns, configMap("settings", "v"))
			}
		})
	}
}
