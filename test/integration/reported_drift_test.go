package integration_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// hideHash removes the hash of the declaration from the managedFields entry of nstpl on a RoleBinding. Every user who
// may write the object may do that.
func hideHash(s *testScope, ns *corev1.Namespace, binding, user string) {
	s.t.Helper()
	owner, err := s.newUserClient(user)
	require.NoError(s.t, err)
	require.NoError(s.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live := s.mustGet(ns, parseYAML(s.t, grantTo(binding))[0])
		changeOperatorEntry(live, func(entry *metav1.ManagedFieldsEntry) {
			var fields map[string]map[string]any
			require.NoError(s.t, json.Unmarshal([]byte(entry.FieldsV1.GetRawString()), &fields))
			delete(fields["f:metadata"], "f:annotations")
			data, err := json.Marshal(fields)
			require.NoError(s.t, err)
			entry.FieldsV1 = metav1.NewFieldsV1(string(data))
		})
		labels := live.GetLabels()
		labels["note"] = "x"
		live.SetLabels(labels)
		return owner.Update(s.t.Context(), live)
	}))
}

// twoMisfits are overlays that cannot be rendered together, for namespaces that their users label.
func twoMisfits(s *testScope) func(*v1alpha1.NamespaceTemplate) {
	overlay := func(name, patch string) v1alpha1.Overlay {
		return v1alpha1.Overlay{
			Name: name, Namespaces: selectLabel("misfit", s.id), Patches: []v1alpha1.Patch{{Patch: patch}},
		}
	}
	const of = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: misfit}\n"
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Overlays = []v1alpha1.Overlay{
			overlay("first", "$patch: delete\n"+of), overlay("second", of+"data: {a: b}\n"),
		}
	}
}

// Users may remove fields from the managedFields entry of nstpl, or replace an object, which shows drift. With
// driftPolicy Report, such drift lasts only until the declaration changes, also if the template does not declare the
// object meanwhile. It keeps no subject that a change takes away.
func TestReportedDriftKeepsNoRevokedSubject(t *testing.T) {
	t.Parallel()
	type revocation func(s *testScope, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace, revoke func())
	label := func(s *testScope, ns *corev1.Namespace, key, value string) {
		s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, key, value))
	}
	revocations := map[string]revocation{
		"the template changes": func(_ *testScope, _ *v1alpha1.NamespaceTemplate, _ *corev1.Namespace, revoke func()) {
			revoke()
		},
		"another template declares it": func(
			s *testScope, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace, _ func(),
		) {
			s.delete(template)
			s.waitEvent(ns, corev1.EventTypeWarning, "GrantStays", "no template declares it")
			s.createTemplate("b", documents(grantTo("owner", "other"), configMap("misfit", "v")), reportsDrift)
		},
		"while the namespace is outside": func(
			s *testScope, _ *v1alpha1.NamespaceTemplate, ns *corev1.Namespace, revoke func(),
		) {
			label(s, ns, testLabel, "null")
			s.waitEvent(ns, corev1.EventTypeWarning, "GrantStays", "no template declares it")
			revoke()
			label(s, ns, testLabel, `"`+s.id+`"`)
		},
		"while the template cannot be rendered": func(
			s *testScope, _ *v1alpha1.NamespaceTemplate, ns *corev1.Namespace, revoke func(),
		) {
			label(s, ns, "misfit", `"`+s.id+`"`)
			s.waitNotPopulated(ns, "misfit")
			revoke()
			label(s, ns, "misfit", "null")
		},
		"while the namespace is opted out": func(
			s *testScope, _ *v1alpha1.NamespaceTemplate, ns *corev1.Namespace, revoke func(),
		) {
			optOut := func(value string) {
				s.patchNamespace(ns,
					fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`, v1alpha1.OptOutAnnotation, value))
			}
			optOut(`"true"`)
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.Empty(c, condition.Status)
			})
			revoke()
			optOut("null")
		},
		"while the namespace is exempt": func(
			s *testScope, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace, revoke func(),
		) {
			exemption := createExemption(s, ns, template)
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.NotContains(c, condition.Message, " of "+template.Name)
			})
			revoke()
			s.delete(exemption)
		},
	}
	hide := map[string]func(s *testScope, ns *corev1.Namespace, user string){
		"hidden": func(s *testScope, ns *corev1.Namespace, user string) { hideHash(s, ns, "owner", user) },
		"replaced": func(s *testScope, ns *corev1.Namespace, user string) {
			s.replace(ns, parseYAML(s.t, grantTo("owner", user, "other"))[0])
		},
	}
	for way, hide := range hide {
		for name, revocation := range revocations {
			t.Run(way+", "+name, func(t *testing.T) {
				t.Parallel()
				s := newScope(t, sharedCluster)
				user := s.name("owner")
				declare := func(users ...string) string {
					return documents(grantTo("owner", users...), configMap("misfit", "v"))
				}
				template := s.createTemplate("a", declare(user, "other"), reportsDrift, twoMisfits(s))
				ns := s.createPopulatedNamespace("a")
				hide(s, ns, user)
				s.waitDriftedNamespaces(template, 1)
				require.Contains(t, s.subjectsOf(ns, "owner"), user)
				revocation(s, template, ns, func() { s.updateTemplate(template, withObjects(t, declare("other"))) })
				s.eventually(func(c *assert.CollectT) { assert.Equal(c, []string{"other"}, s.subjectsOf(ns, "owner")) })
				require.NotContains(t, s.mustGet(ns, parseYAML(t, grantTo("owner"))[0]).GetAnnotations(),
					v1alpha1.AdoptedAnnotation)
			})
		}
	}
}
