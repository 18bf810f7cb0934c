package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/test/marks"
)

// grants has a Role and a RoleBinding to it.
var grants = documents(
	"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: "+replacedName+"}\n"+
		"rules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}]\n",
	bindingToRole(replacedName, replacedName, "jane"))

// replace deletes an object and creates it again without what the operator wrote on it, until that succeeds before the
// operator creates it.
func (s *testScope) replace(ns *corev1.Namespace, declared *unstructured.Unstructured) {
	s.t.Helper()
	theirs := declared.DeepCopy()
	theirs.SetNamespace(ns.Name)
	s.eventually(func(c *assert.CollectT) {
		require.NoError(s.t, client.IgnoreNotFound(s.client.Delete(s.t.Context(), theirs.DeepCopy())))
		err := s.client.Create(s.t.Context(), theirs.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(s.t, err)
		}
		assert.NoError(c, err)
	})
}

// A user who may bind a Role can delete a populated RoleBinding and create it again. It stays the template's own, so it
// is revoked with the template.
func TestReplacedGrantsAreRevoked(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", documents(grants, configMap("kept", "v")))
	ns := s.createPopulatedNamespace("a")
	for _, object := range parseYAML(t, grants) {
		s.replace(ns, object)
		s.eventually(func(c *assert.CollectT) {
			live, err := s.get(ns, object)
			if assert.NoError(c, err) {
				assert.Equal(c, template.Name, live.GetLabels()[v1alpha1.TemplateNameLabel])
				assert.NotContains(c, live.GetAnnotations(), v1alpha1.AdoptedAnnotation)
			}
		})
	}
	s.updateTemplate(template, withObjects(t, configMap("kept", "v")))
	s.waitAbsent(ns, grants)
}

// The record in the namespace tells an operator that starts what was replaced meanwhile, also if a template revoked it.
func TestGrantsReplacedWithoutTheOperatorAreRevoked(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.createTemplate("grants", documents(grants, configMap("kept", "v")))
	revoked, replaced := s.createPopulatedNamespace("revoked", withLabel("class", "a")), s.createPopulatedNamespace("b")
	objects := parseYAML(t, grants)
	replace := func() {
		t.Helper()
		require.NoError(t, s.operator.Kill())
		for _, object := range objects {
			s.replace(revoked, object)
			s.replace(replaced, object)
		}
	}
	replace()
	require.NoError(t, s.startOperator(t.Context()))
	for _, object := range objects {
		s.eventually(func(c *assert.CollectT) {
			live, err := s.get(replaced, object)
			if assert.NoError(c, err) {
				assert.Equal(c, template.Name, live.GetLabels()[v1alpha1.TemplateNameLabel])
				assert.NotContains(c, live.GetAnnotations(), v1alpha1.AdoptedAnnotation)
			}
		})
	}

	replace()
	s.disableVetting()
	s.patchTemplate(template, withObjects(t, configMap("kept", "v")))
	require.NoError(t, s.startOperator(t.Context()))
	s.waitAbsent(revoked, grants)
	s.waitAbsent(replaced, grants)
}

// Who replaces a Role and a RoleBinding while the operator leaves them alone does not keep them after that.
func TestGrantsReplacedWhileTheyAreLeftAloneAreRevoked(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: " + replacedName + "}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\n" +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]\n"
	template := s.createTemplate("grants", binding)
	objects := parseYAML(t, binding)
	optOut := func(value string) func(*corev1.Namespace) {
		return func(ns *corev1.Namespace) {
			s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, v1alpha1.OptOutAnnotation, value))
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.NotContains(c, condition.Message, " of "+template.Name)
			})
		}
	}
	optIn := func(ns *corev1.Namespace) {
		s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`, v1alpha1.OptOutAnnotation))
	}
	exempt := func(objects ...*unstructured.Unstructured) func(*corev1.Namespace) {
		return func(ns *corev1.Namespace) {
			exemption := newExemption(ns, "x", template)
			for _, object := range objects {
				exemption.Spec.Objects = append(exemption.Spec.Objects, v1alpha1.ExemptObject{
					Group: rbacv1.GroupName, Kind: object.GetKind(), Name: object.GetName(),
				})
			}
			require.NoError(t, s.client.Create(t.Context(), exemption))
			waitExemption(s, exemption, v1alpha1.ExemptionActive, metav1.ConditionTrue, "the namespace is exempt from ")
		}
	}
	endExemption := func(ns *corev1.Namespace) { s.delete(newExemption(ns, "x", template)) }
	ways := map[string]struct{ begin, end func(*corev1.Namespace) }{
		"object": {exempt(objects...), endExemption}, "template": {exempt(), endExemption},
		"out": {optOut("true"), optIn}, "partly": {optOut(template.Name), optIn},
	}
	namespaces := map[string]*corev1.Namespace{}
	for name, way := range ways {
		ns := s.createPopulatedNamespace(name)
		namespaces[name] = ns
		way.begin(ns)
		for _, object := range objects {
			s.delete(s.mustGet(ns, object))
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.NotContains(c, condition.Message, "stays") // the operator has noticed the deletion
			})
			s.replace(ns, object)
		}
	}
	s.updateTemplate(template, withObjects(t, configMap("kept", "v")))
	for name, way := range ways {
		s.waitPresent(namespaces[name], binding)
		way.end(namespaces[name])
	}
	for _, ns := range namespaces {
		s.waitAbsent(ns, binding)
	}
}

// A RoleBinding that existed before stays when the template revokes it, and is reported as long as it does.
func TestGrantsThatStayAreReported(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("a")
	binding := bindingToRole(replacedName, replacedName, "jane")
	theirs := parseYAML(t, binding)[0]
	theirs.SetNamespace(ns.Name)
	require.NoError(t, s.client.Create(t.Context(), theirs))
	template := s.createTemplate("grants", documents(binding, configMap("kept", "v")))
	s.waitPopulated(ns)
	s.updateTemplate(template, withObjects(t, configMap("kept", "v")))

	s.waitEvent(ns, corev1.EventTypeWarning, populate.FindingGrantStays, "existed before nstpl managed it")
	reported := func() []populate.Reported {
		live := &corev1.Namespace{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), live))
		return populate.ReportedFindings(populate.PopulatedCondition(live))
	}
	findings := reported()
	require.Len(t, findings, 1)
	require.Equal(t, populate.FindingGrantStays, findings[0].Reason)
	require.Equal(t, "rolebinding.rbac.authorization.k8s.io/"+replacedName, findings[0].Object)

	require.NoError(t, s.client.Delete(t.Context(), theirs))
	s.eventually(func(c *assert.CollectT) { assert.Empty(c, reported()) })
}

// Whatever keeps a grant that no template declares for the namespace, it is reported as long as it stays.
func TestGrantsThatStayForAnyReasonAreReported(t *testing.T) {
	t.Parallel()
	binding := bindingToRole(replacedName, replacedName, "jane")
	for name, leave := range map[string]func(s *testScope, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace){
		"the template is deleted": func(s *testScope, template *v1alpha1.NamespaceTemplate, _ *corev1.Namespace) {
			s.delete(template)
		},
		"the template is disabled": func(s *testScope, template *v1alpha1.NamespaceTemplate, _ *corev1.Namespace) {
			s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
				template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
			})
		},
		"the selector is narrower": func(s *testScope, template *v1alpha1.NamespaceTemplate, _ *corev1.Namespace) {
			s.updateTemplate(template, s.selectsClass("class", "gold"))
		},
		"the namespace is labeled": func(s *testScope, _ *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) {
			s.patchNamespace(ns, `{"metadata": {"labels": {"`+testLabel+`": null}}}`)
		},
		"the namespace is opted out of the template": func(
			s *testScope, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace,
		) {
			s.patchNamespace(ns, `{"metadata": {"annotations": {"`+v1alpha1.OptOutAnnotation+`": "`+template.Name+`"}}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			template := s.createTemplate("grants", documents(grants, configMap("kept", "v")))
			ns := s.createPopulatedNamespace("a")
			leave(s, template, ns)
			s.waitEvent(ns, corev1.EventTypeWarning, populate.FindingGrantStays, "no template declares it")
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				var objects []string
				for _, finding := range populate.ReportedFindings(&condition) {
					if finding.Reason == populate.FindingGrantStays {
						objects = append(objects, finding.Object)
					}
				}
				assert.ElementsMatch(c, []string{"role.rbac.authorization.k8s.io/" + replacedName,
					"rolebinding.rbac.authorization.k8s.io/" + replacedName}, objects)
			})
			require.NotEmpty(t, s.mustGet(ns, parseYAML(t, binding)[0]))
		})
	}
}

// A RoleBinding that a user creates while the template does not select the namespace did not exist before the template
// first selected it.
func TestAGrantReplacedOutsideIsRevoked(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]func(*v1alpha1.NamespaceTemplate){
		"it is deleted": deletesObjects, "it stays, and is replaced": func(*v1alpha1.NamespaceTemplate) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			binding := bindingToRole(replacedName, replacedName, "jane")
			template := s.createTemplate("grants", documents(binding, configMap("kept", "v")), policy)
			ns := s.createPopulatedNamespace("a")
			theirs := parseYAML(t, binding)[0]
			theirs.SetNamespace(ns.Name)

			s.patchNamespace(ns, `{"metadata": {"labels": {"`+testLabel+`": null}}}`)
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.NotContains(c, condition.Message, " of "+template.Name)
			})
			require.NoError(t, client.IgnoreNotFound(s.client.Delete(t.Context(), theirs.DeepCopy())))
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.NotContains(c, condition.Message, "stays") // the operator has noticed the deletion
			})
			require.NoError(t, s.client.Create(t.Context(), theirs.DeepCopy()))

			s.patchNamespace(ns, `{"metadata": {"labels": {"`+testLabel+`": "`+s.id+`"}}}`)
			s.waitPopulated(ns)
			s.updateTemplate(template, withObjects(t, configMap("kept", "v")))
			s.waitAbsent(ns, binding)
		})
	}
}
