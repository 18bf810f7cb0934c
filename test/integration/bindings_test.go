package integration_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// roleNamed returns a Role that grants get on a resource.
func roleNamed(name, resource string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: " + name + "}\n" +
		"rules: [{apiGroups: [\"\"], resources: [" + resource + "], verbs: [get]}]\n"
}

// bindingTo returns a RoleBinding of a user to a Role.
func bindingTo(name, role, user string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: " + name + "}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: " + role + "}\n" +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: " + user + "}]\n"
}

// mayGet reports whether a user may get a resource in a namespace.
func (s *testScope) mayGet(user, resource string, ns *corev1.Namespace) bool {
	s.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: ns.Name, Verb: "get", Resource: resource,
		},
	}}
	require.NoError(s.t, s.client.Create(s.t.Context(), review))
	return review.Status.Allowed
}

// putIn creates an object in a namespace.
func (s *testScope) putIn(ns *corev1.Namespace, object string) *unstructured.Unstructured {
	s.t.Helper()
	put := parseYAML(s.t, object)[0]
	put.SetNamespace(ns.Name)
	require.NoError(s.t, s.client.Create(s.t.Context(), put))
	return put
}

// waitNotPopulated waits until a namespace is not populated, for a reason that holds a text.
func (s *testScope) waitNotPopulated(ns *corev1.Namespace, text string) {
	s.t.Helper()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, text)
	})
}

// denyRole has the API server refuse the Roles of a name, until the function that is returned is called.
func (s *testScope) denyRole(name string) (allow func()) {
	s.t.Helper()
	policy := strings.NewReplacer("SCOPE", s.id, "NAME", name).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: SCOPE
spec:
  matchConstraints:
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
	_, err := s.kubectl(s.t.Context(), policy, "apply", "--filename", "-")
	require.NoError(s.t, err)
	probe := parseYAML(s.t, roleNamed(name, "pods"))[0]
	probe.SetNamespace("default")
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, s.client.Create(s.t.Context(), probe.DeepCopy(), client.DryRunAll),
			"this Role is refused")
	})
	return func() {
		_, err := s.kubectl(s.t.Context(), policy, "delete", "--filename", "-")
		require.NoError(s.t, err)
	}
}

// A RoleBinding whose Role is refused would grant what any other Role of that name grants.
func TestBindingIsNotAppliedWithoutItsRole(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	role, binding := roleNamed(s.id, "pods"), bindingTo("workers", s.id, s.id)
	allow := s.denyRole(s.id)
	s.createTemplate("defaults", documents(binding, role, configMap("good", "v")))
	ns := s.createNamespace("a")
	s.waitPresent(ns, configMap("good", "v"))
	s.waitNotPopulated(ns,
		"rolebinding.rbac.authorization.k8s.io/workers: not applied, because role.rbac.authorization.k8s.io/"+s.id+" is not as declared")
	s.waitAbsent(ns, binding)
	allow()
	s.waitPopulated(ns)
	s.waitPresent(ns, documents(role, binding))
	require.True(t, s.mayGet(s.id, "pods", ns))
}

// A wider Role that existed before is narrowed before anything binds it.
func TestBindingIsAppliedAfterAWiderRoleIsNarrowed(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	s.putIn(ns, roleNamed("worker", "secrets"))
	s.createTemplate("defaults", documents(bindingTo("workers", "worker", s.id), roleNamed("worker", "pods")))
	s.eventually(func(c *assert.CollectT) {
		assert.False(c, s.mayGet(s.id, "secrets", ns))
		assert.True(c, s.mayGet(s.id, "pods", ns))
	})
	s.waitPopulated(ns)
	role := s.mustGet(ns, parseYAML(t, roleNamed("worker", ""))[0])
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
	require.NotContains(t, order[:last], "rolebindings", "the Role is changed first")
}

// A RoleBinding that exists goes when its Role is replaced by another one that cannot be put right.
func TestBindingIsDeletedWhenItsRoleCannotBeCorrected(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	role, binding := roleNamed(s.id, "pods"), bindingTo("workers", s.id, s.id)
	s.createTemplate("defaults", documents(role, binding))
	ns := s.createPopulatedNamespace("a")
	s.eventually(func(c *assert.CollectT) { assert.True(c, s.mayGet(s.id, "pods", ns)) })

	allow := s.denyRole(s.id)
	wider := s.mustGet(ns, parseYAML(t, role)[0])
	require.NoError(t, unstructured.SetNestedSlice(wider.Object, []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"},
	}}, "rules"))
	require.NoError(t, s.client.Update(t.Context(), wider))
	s.waitAbsent(ns, binding)
	s.waitNotPopulated(ns, "deleted until its Role can be applied")
	s.eventually(func(c *assert.CollectT) { assert.False(c, s.mayGet(s.id, "secrets", ns)) })
	allow()
	s.waitPopulated(ns)
	s.waitPresent(ns, documents(role, binding))
}

// A template's RoleBinding never grants what another template's Role of the same name does.
func TestBindingIsNotAppliedWhenAnotherTemplateDeclaresItsRole(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	earlier := s.createTemplate("a",
		documents(roleNamed("worker", "pods"), bindingTo("workers", "worker", s.id),
			bindingTo("others", "other", s.id)))
	older := s.createPopulatedNamespace("older")
	s.waitPresent(older, bindingTo("workers", "worker", s.id))

	later := s.createTemplate("b", roleNamed("worker", "secrets"))
	newer := s.createPopulatedNamespace("newer")
	for _, ns := range []*corev1.Namespace{older, newer} {
		s.waitPresent(ns, documents(roleNamed("worker", "secrets"), bindingTo("others", "other", s.id)))
		s.waitAbsent(ns, bindingTo("workers", "worker", s.id))
		require.False(t, s.mayGet(s.id, "secrets", ns))
	}
	s.delete(later)
	s.waitDeleted(later)
	for _, ns := range []*corev1.Namespace{older, newer} {
		s.waitPresent(ns, documents(roleNamed("worker", "pods"), bindingTo("workers", "worker", s.id)))
	}
	s.waitTemplateObserved(earlier)
}

// RoleBindings that a template left behind keep its Role from being taken over by another template.
func TestRoleIsNotTakenOverWhileOrphanedBindingsExist(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	gone := s.createTemplate("a", documents(roleNamed("worker", "pods"), bindingTo("workers", "worker", s.id)))
	ns := s.createPopulatedNamespace("a")
	s.delete(gone)
	s.waitDeleted(gone)
	s.createTemplate("b", roleNamed("worker", "secrets"))
	s.waitNotPopulated(ns, "is left in the namespace and may bind it")
	require.False(t, s.mayGet(s.id, "secrets", ns))
	s.delete(s.mustGet(ns, parseYAML(t, bindingTo("workers", "worker", s.id))[0]))
	s.waitPresent(ns, roleNamed("worker", "secrets"))
	s.waitPopulated(ns)
}

// finalizer is a user's, so that a deletion does not end.
const finalizer = "example.com/keep"

func (s *testScope) setFinalizers(object *unstructured.Unstructured, finalizers ...string) {
	s.t.Helper()
	changed := object.DeepCopy()
	changed.SetFinalizers(finalizers)
	require.NoError(s.t, s.client.Patch(s.t.Context(), changed, client.MergeFrom(object)))
}

// What a template no longer grants ends, even where a user keeps the object by a finalizer.
func TestRevokedGrantEndsDespiteAFinalizer(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(s *testScope) string{
		"no longer declared": func(*testScope) string { return configMap("other", "v") },
		"another roleRef": func(s *testScope) string {
			return documents(roleNamed("idle", "events"), bindingTo("workers", "idle", s.id))
		},
	} {
		for when, deletedBefore := range map[string]bool{"held": false, "held while it is being deleted": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				s := newScope(t, sharedCluster)
				template := s.createTemplate("defaults",
					documents(roleNamed("worker", "pods"), bindingTo("workers", "worker", s.id)))
				ns := s.createPopulatedNamespace("a")
				binding := s.mustGet(ns, parseYAML(t, bindingTo("workers", "worker", s.id))[0])
				s.setFinalizers(binding, finalizer)
				if deletedBefore {
					s.delete(binding)
				}
				s.eventually(func(c *assert.CollectT) { assert.True(c, s.mayGet(s.id, "pods", ns)) })

				s.updateTemplate(template, withObjects(t, after(s)))
				s.eventually(func(c *assert.CollectT) {
					assert.False(c, s.mayGet(s.id, "pods", ns))
					assert.NotNil(c, s.mustGet(ns, binding).GetDeletionTimestamp())
				})
				s.waitNotPopulated(ns, finalizer)
				binding = s.mustGet(ns, binding)
				s.setFinalizers(binding)
				s.waitPopulated(ns)
				s.waitPresent(ns, after(s))
			})
		}
	}
}

// Users can write managedFields, and nothing that they write there hides what they changed.
func TestDriftIsDetectedDespiteForgedManagedFields(t *testing.T) {
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
			reports := s.createTemplate("report", configMap("reported", "v"), func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.DriftPolicy = v1alpha1.DriftReport
			})
			template := s.createTemplate("correct", documents(configMap("corrected", "v"), configMap("dropped", "v")))
			ns := s.createPopulatedNamespace("a")
			// managedFields tell seconds apart. What a user writes in the very second of the operator's apply,
			// admission refuses.
			applied := time.Now()
			s.eventually(func(c *assert.CollectT) { assert.Greater(c, time.Now().Unix(), applied.Unix()) })
			for _, name := range []string{"reported", "corrected", "dropped"} {
				// The operator may have corrected the first of two writes before the second one comes.
				require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
					object := s.mustGet(ns, parseYAML(t, configMap(name, ""))[0])
					require.NoError(t, unstructured.SetNestedField(object.Object, tampered, "data", "key"))
					return change(s, object)
				}))
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
