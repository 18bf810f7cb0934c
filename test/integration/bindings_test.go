package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// denyRole has the API server deny the Roles of a name until the returned function is called, but not when a template
// is tried.
func denyRole(s *testScope, name string) (allow func()) {
	s.t.Helper()
	policy := strings.NewReplacer("SCOPE", s.id, "NAME", name).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: SCOPE
spec:
  matchConstraints:
    namespaceSelector:
      matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [nstpl-trial]}]
    resourceRules:
    - {apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], resources: [roles], operations: [CREATE, UPDATE]}
  matchConditions:
  - {name: of-the-operator, expression: "request.userInfo.username == 'system:serviceaccount:nstpl-system:nstpl-operator' || request.dryRun"}
  validations:
  - {expression: "object.metadata.name != 'NAME'", message: this Role is refused}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: SCOPE
spec:
  policyName: SCOPE
  validationActions: [Deny]
`)
	s.applyYAML(policy)
	probe := parseYAML(s.t, readerRole(name, "pods"))[0]
	probe.SetNamespace("default")
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, s.client.Create(s.t.Context(), probe.DeepCopy(), client.DryRunAll),
			"this Role is refused")
	})
	return func() { s.deleteYAML(policy) }
}

// A RoleBinding whose Role is denied is not applied, because it would grant the rules of any Role of that name.
func TestBindingIsNotAppliedWithoutItsRole(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	role, binding := readerRole(s.id, "pods"), bindingToRole("workers", s.id, s.id)
	allow := denyRole(s, s.id)
	s.createTemplate("defaults", documents(binding, role, configMap("good", "v")))
	ns := s.createNamespace("a")
	s.waitPresent(ns, configMap("good", "v"))
	s.waitNotPopulated(ns,
		"rolebinding.rbac.authorization.k8s.io/workers of template "+s.name("defaults")+
			": not applied, because role.rbac.authorization.k8s.io/"+s.id+" is not as declared")
	s.waitAbsent(ns, binding)
	allow()
	s.waitPopulated(ns)
	s.waitPresent(ns, documents(role, binding))
	require.True(t, s.isAllowed(s.id, ns.Name, "get", "pods"))
}

// A Role that existed with more rules gets the declared rules before it is bound.
func TestBindingIsAppliedAfterAWiderRoleIsNarrowed(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	s.createObjects(ns.Name, readerRole("worker", "secrets"))
	s.createTemplate("defaults", documents(bindingToRole("workers", "worker", s.id), readerRole("worker", "pods")))
	s.eventually(func(c *assert.CollectT) {
		assert.False(c, s.isAllowed(s.id, ns.Name, "get", "secrets"))
		assert.True(c, s.isAllowed(s.id, ns.Name, "get", "pods"))
	})
	s.waitPopulated(ns)
	role := s.mustGet(ns, parseYAML(t, readerRole("worker", ""))[0])
	require.Equal(t, "true", role.GetAnnotations()[v1alpha1.AdoptedAnnotation])
	writes := s.writesSince(0, func(r request) bool {
		return r.ObjectRef.Namespace == ns.Name && r.ObjectRef.APIGroup == rbacv1.GroupName
	})
	var order []string
	for _, write := range writes {
		order = append(order, write.ObjectRef.Resource)
	}
	last := len(order) - 1
	require.Equal(t, "rolebindings", order[last])
	require.NotContains(t, order[:last], "rolebindings", "the Role must be written first")
}

// A RoleBinding is deleted when its Role was changed and cannot be corrected.
func TestBindingIsDeletedWhenItsRoleCannotBeCorrected(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	role, binding := readerRole(s.id, "pods"), bindingToRole("workers", s.id, s.id)
	s.createTemplate("defaults", documents(role, binding))
	ns := s.createPopulatedNamespace("a")
	s.eventually(func(c *assert.CollectT) { assert.True(c, s.isAllowed(s.id, ns.Name, "get", "pods")) })

	allow := denyRole(s, s.id)
	wider := s.mustGet(ns, parseYAML(t, role)[0])
	require.NoError(t, unstructured.SetNestedSlice(wider.Object, []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"},
	}}, "rules"))
	require.NoError(t, s.client.Update(t.Context(), wider))
	s.waitAbsent(ns, binding)
	s.waitNotPopulated(ns, "not applied, because role.rbac.authorization.k8s.io")
	s.eventually(func(c *assert.CollectT) { assert.False(c, s.isAllowed(s.id, ns.Name, "get", "secrets")) })
	allow()
	s.waitPopulated(ns)
	s.waitPresent(ns, documents(role, binding))
}

// A template's RoleBinding never binds a Role of the same name that another template declares.
func TestBindingIsNotAppliedWhenAnotherTemplateDeclaresItsRole(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	earlier := s.createTemplate("a",
		documents(readerRole("worker", "pods"), bindingToRole("workers", "worker", s.id),
			bindingToRole("others", "other", s.id)))
	older := s.createPopulatedNamespace("older")
	s.waitPresent(older, bindingToRole("workers", "worker", s.id))

	later := s.createTemplate("b", readerRole("worker", "secrets"))
	newer := s.createPopulatedNamespace("newer")
	for _, ns := range []*corev1.Namespace{older, newer} {
		s.waitPresent(ns, documents(readerRole("worker", "secrets"), bindingToRole("others", "other", s.id)))
		s.waitAbsent(ns, bindingToRole("workers", "worker", s.id))
		require.False(t, s.isAllowed(s.id, ns.Name, "get", "secrets"))
	}
	s.delete(later)
	s.waitDeleted(later)
	for _, ns := range []*corev1.Namespace{older, newer} {
		s.waitPresent(ns, documents(readerRole("worker", "pods"), bindingToRole("workers", "worker", s.id)))
	}
	s.waitTemplateObserved(earlier)
}

// A template does not take over a Role while RoleBindings of a deleted template may bind it.
func TestRoleIsNotTakenOverWhileOrphanedBindingsExist(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	gone := s.createTemplate("a", documents(readerRole("worker", "pods"), bindingToRole("workers", "worker", s.id)))
	ns := s.createPopulatedNamespace("a")
	s.delete(gone)
	s.waitDeleted(gone)
	s.createObjects(ns.Name, bindingToRole("mine", "worker", s.id))
	s.createTemplate("b", readerRole("worker", "secrets"))
	for _, name := range []string{"mine", "workers"} {
		s.waitNotPopulated(ns, "rolebinding.rbac.authorization.k8s.io/"+name+", which no template declares as it is, would")
		require.False(t, s.isAllowed(s.id, ns.Name, "get", "secrets"))
		s.delete(s.mustGet(ns, parseYAML(t, bindingToRole(name, "worker", s.id))[0]))
	}
	s.waitPresent(ns, readerRole("worker", "secrets"))
	s.waitPopulated(ns)
}

// bindingsBeforeRole returns the operator's writes of RoleBindings in a namespace before it first wrote a Role, and since a
// position of the audit log.
func (s *testScope) bindingsBeforeRole(ns *corev1.Namespace, position int) []string {
	s.t.Helper()
	var names []string
	for _, write := range s.writesSince(position, func(r request) bool {
		return r.ObjectRef.Namespace == ns.Name && r.ObjectRef.APIGroup == rbacv1.GroupName
	}) {
		if write.ObjectRef.Resource == "roles" {
			break
		}
		names = append(names, write.Verb+" "+write.ObjectRef.Name)
	}
	return names
}

// A RoleBinding that remains from an earlier template of the same name does not get the rules of a later one's Role.
func TestBindingsOfAnEarlierTemplateOfTheSameNameEndFirst(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	gone := s.createTemplate("a", documents(roleWithRules("worker", "rules: []"), bindingToRole("workers", "worker", s.id)))
	ns := s.createPopulatedNamespace("a")
	s.delete(gone)
	s.waitDeleted(gone)
	position := s.auditPosition()
	s.createTemplate("a", readerRole("worker", "secrets"))
	s.waitPresent(ns, readerRole("worker", "secrets"))
	s.waitAbsent(ns, bindingToRole("workers", "worker", s.id))
	s.waitPopulated(ns)
	require.Equal(t, []string{"patch workers"}, s.bindingsBeforeRole(ns, position))
}

// A subject that a change of a template takes away does not get the rules that the same change adds to its Role. One
// that the template binds under another name keeps its rights.
func TestRemovedSubjectsGetNoNewRules(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("a", documents(readerRole("worker", "pods"), readerRole("idle", "pods"),
		readerRole("former", "pods"), bindingToRole("of-former", "former", s.id),
		bindingToRole("changed", "worker", s.id), bindingToRole("dropped", "worker", s.id),
		bindingToRole("renamed", "worker", "kept"), bindingToRole("moved", "worker", s.id),
		bindingToRole("other", "idle", s.id)))
	ns := s.createPopulatedNamespace("a")
	position := s.auditPosition()
	after := documents(readerRole("worker", "secrets"), readerRole("idle", "pods"), bindingToRole("changed", "worker", "other"),
		bindingToRole("named", "worker", "kept"), bindingToRole("moved", "idle", s.id))
	s.updateTemplate(template, withObjects(t, after))
	s.waitPresent(ns, after)
	s.waitAbsent(ns, documents(bindingToRole("dropped", "", ""), bindingToRole("renamed", "", ""), bindingToRole("other", "", "")))
	s.waitPopulated(ns)
	before := s.bindingsBeforeRole(ns, position)
	require.Subset(t, before, []string{"patch changed", "patch dropped", "patch moved"})
	require.NotContains(t, before, "patch renamed")
	require.NotContains(t, before, "patch of-former", "its Role gets no other rules, and both may have new names")
}

// A grant that a template no longer declares ends, even if a finalizer keeps the object.
func TestRevokedGrantEndsDespiteAFinalizer(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	for name, after := range map[string]func(s *testScope) string{
		"no longer declared": func(*testScope) string { return configMap("other", "v") },
		"another roleRef": func(s *testScope) string {
			return documents(readerRole("idle", "events"), bindingToRole("workers", "idle", s.id))
		},
	} {
		for when, deletedBefore := range map[string]bool{"held": false, "held while it is being deleted": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				s := newScope(t, sharedCluster)
				template := s.createTemplate("defaults",
					documents(readerRole("worker", "pods"), bindingToRole("workers", "worker", s.id)))
				ns := s.createPopulatedNamespace("a")
				binding := s.mustGet(ns, parseYAML(t, bindingToRole("workers", "worker", s.id))[0])
				removeFinalizer := s.addFinalizer(ns, binding)
				if deletedBefore {
					s.delete(binding)
				}
				s.eventually(func(c *assert.CollectT) { assert.True(c, s.isAllowed(s.id, ns.Name, "get", "pods")) })

				s.updateTemplate(template, withObjects(t, after(s)))
				s.eventually(func(c *assert.CollectT) {
					assert.False(c, s.isAllowed(s.id, ns.Name, "get", "pods"))
					assert.NotNil(c, s.mustGet(ns, binding).GetDeletionTimestamp())
				})
				s.waitNotPopulated(ns, testFinalizer)
				removeFinalizer()
				s.waitPopulated(ns)
				s.waitPresent(ns, after(s))
			})
		}
	}
}

// The operator detects changes even if their authors also change managedFields.
func TestDriftIsDetectedDespiteForgedManagedFields(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	const tampered = "tampered"
	write := func(s *testScope, object *unstructured.Unstructured, managed []metav1.ManagedFieldsEntry) error {
		object.SetManagedFields(managed)
		return s.client.Update(s.t.Context(), object, client.FieldOwner("kubectl-edit"))
	}
	for name, change := range map[string]func(s *testScope, object *unstructured.Unstructured) error{
		"an apply in nstpl's name": func(s *testScope, object *unstructured.Unstructured) error {
			object.SetManagedFields(nil)
			object.SetResourceVersion("")
			return s.client.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(object),
				client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
		},
		"earlier managedFields": func(s *testScope, object *unstructured.Unstructured) error {
			before := object.GetManagedFields()
			if err := write(s, object, before); err != nil {
				return err
			}
			return write(s, object, before)
		},
		"no managedFields": func(s *testScope, object *unstructured.Unstructured) error {
			return write(s, object, []metav1.ManagedFieldsEntry{{}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			reports := s.createTemplate("report", configMap("reported", "v"), reportsDrift)
			template := s.createTemplate("correct", documents(configMap("corrected", "v"), configMap("dropped", "v")))
			ns := s.createPopulatedNamespace("a")
			// Times in managedFields are in seconds. Admission denies forgeries within the second of the operator's
			// apply.
			applied := time.Now()
			s.eventually(func(c *assert.CollectT) { assert.Greater(c, time.Now().Unix(), applied.Unix()) })
			for _, name := range []string{"reported", "corrected", "dropped"} {
				// The operator often corrects the first of two writes before the second one arrives, which is then a
				// conflict.
				s.eventually(func(c *assert.CollectT) {
					object := s.mustGet(ns, parseYAML(t, configMap(name, ""))[0])
					require.NoError(t, unstructured.SetNestedField(object.Object, tampered, "data", "key"))
					assert.NoError(c, change(s, object))
				})
			}
			s.waitPresent(ns, documents(configMap("corrected", "v"), configMap("dropped", "v")))
			s.waitTemplateStatus(reports, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
				assert.Equal(c, int32(1), status.Namespaces.Drifted)
			})
			s.updateTemplate(template, withObjects(t, configMap("corrected", "v")))
			s.waitAbsent(ns, configMap("dropped", ""))
		})
	}
}
