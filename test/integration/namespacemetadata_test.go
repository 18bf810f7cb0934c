package integration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// The label of Pod Security Admission that sets what pods may do.
const enforceLabel = "pod-security.kubernetes.io/enforce"

// labelsNamespaces has a template set labels of namespaces, given as keys and values.
func labelsNamespaces(pairs ...string) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) {
		labels := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			labels[pairs[i]] = pairs[i+1]
		}
		template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: labels}
	}
}

// waitLabels waits until the labels of a namespace have some values. An empty value means that the label is missing.
func waitLabels(s *testScope, ns *corev1.Namespace, pairs ...string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		if !assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), found)) {
			return
		}
		for i := 0; i < len(pairs); i += 2 {
			value, exists := found.Labels[pairs[i]]
			assert.Equal(c, pairs[i+1], value, pairs[i])
			assert.Equal(c, pairs[i+1] != "", exists, pairs[i])
		}
	})
}

func TestNamespaceMetadataIsSetWithTokensBeforeTheNamespaceOpens(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("psa", configMap("a", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{
			Labels:      map[string]string{enforceLabel: "baseline", s.name("of"): "$(NAMESPACE)"},
			Annotations: map[string]string{"example.com/contact": "$(CREATOR)"},
		}
		template.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "strict", Namespaces: selectLabel("tier", s.name("strict")),
			NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: map[string]string{enforceLabel: "restricted"}},
		}}
	})
	position := s.auditPosition()
	ns := s.createPopulatedNamespace("a", withCreator("jane@example.com"))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	require.Equal(t, "baseline", ns.Labels[enforceLabel])
	require.Equal(t, ns.Name, ns.Labels[s.name("of")])
	require.Equal(t, "jane@example.com", ns.Annotations["example.com/contact"])
	strict := s.createPopulatedNamespace("b", withLabel("tier", s.name("strict")))
	waitLabels(s, strict, enforceLabel, "restricted")
	require.Len(t, s.writesSince(position, func(r request) bool {
		return r.User.Username == operatorUser && r.ObjectRef.Resource == "namespaces" &&
			r.ObjectRef.Name == ns.Name && r.ObjectRef.Subresource == ""
	}), 1, "one write more than without namespaceMetadata")
}

// A pod that was created before the namespace had the label of Pod Security Admission, and was held since, is judged
// with the label.
func TestHeldWritesAreJudgedByTheLabelsOfTemplates(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	user, ns := s.newHeldNamespace()
	s.eventually(func(c *assert.CollectT) { // until the API server knows the user's permissions
		_, err := user.CoreV1().Pods(ns.Name).List(t.Context(), metav1.ListOptions{})
		assert.NoError(c, err)
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: "default"},
			&corev1.ServiceAccount{}))
	})
	position := s.auditPosition()
	done := make(chan error, 1)
	go func() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "host"}, Spec: corev1.PodSpec{
			HostNetwork: true, Containers: []corev1.Container{{Name: "a", Image: "a"}},
		}}
		_, err := user.CoreV1().Pods(ns.Name).Create(t.Context(), pod, metav1.CreateOptions{})
		done <- err
	}()
	// A later write of a user who does not wait ends before the one that is held.
	s.waitReceived(position, ns.Name, 1)
	require.NoError(t, s.client.Create(t.Context(), newConfigMap(ns.Name, "admins")))
	select {
	case err := <-done:
		require.Fail(t, "the pod was not held", "%v", err)
	default:
	}
	s.createTemplate("psa", "", labelsNamespaces(enforceLabel, "baseline"))
	waitLabels(s, ns, enforceLabel, "baseline")
	s.finishInitialization(ns)
	expectForbidden(t, <-done, "violates PodSecurity")
}

func TestNamespaceMetadataIsCorrectedOrReported(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	corrected, reported := s.name("corrected"), s.name("reported")
	s.createTemplate("correct", "", labelsNamespaces(corrected, "x"))
	reports := s.createTemplate("report", "", labelsNamespaces(reported, "x"), reportsDrift)
	ns := s.createPopulatedNamespace("a")
	waitLabels(s, ns, corrected, "x", reported, "x")
	for _, value := range []string{"other", ""} {
		s.patchLabel(ns, corrected, value)
		s.patchLabel(ns, reported, value)
		waitLabels(s, ns, corrected, "x", reported, value)
		s.waitDriftedNamespaces(reports, 1)
	}
	s.waitEvent(ns, corev1.EventTypeNormal, "DriftCorrected", "was applied again: label "+corrected+` was set to "other"`)
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message,
			"namespace/"+ns.Name+": drifted: label "+reported+" was removed by another client; driftPolicy is Report")
	})
	s.updateTemplate(reports, labelsNamespaces(reported, "y"))
	waitLabels(s, ns, reported, "y") // the declaration is another one than the one that was reported
	s.waitEvent(ns, corev1.EventTypeWarning, "DriftOverwritten", "label "+reported+" its declaration changed")
	s.waitDriftedNamespaces(reports, 0)
	s.updateTemplate(reports, labelsNamespaces(reported, "z"))
	waitLabels(s, ns, reported, "z") // a changed declaration is not drift

	// A value from before is replaced, or reported, as it is in an object that is adopted.
	older := s.createPopulatedNamespace("b", withLabel(corrected, "mine"), withLabel(reported, "mine"))
	waitLabels(s, older, corrected, "x", reported, "mine")
	s.waitDriftedNamespaces(reports, 1)
}

func TestNamespaceMetadataIsRemovedOnlyIfNstplAddedIt(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testScope, *v1alpha1.NamespaceTemplate){
		"no longer declared": func(s *testScope, template *v1alpha1.NamespaceTemplate) {
			s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.NamespaceMetadata = nil
			})
		},
		"no longer selected": func(s *testScope, template *v1alpha1.NamespaceTemplate) {
			s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.Namespaces = selectLabel(testLabel, s.name("none"))
			})
		},
		"deleted": func(s *testScope, template *v1alpha1.NamespaceTemplate) {
			s.delete(template)
			s.waitDeleted(template)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			added, before, changed := s.name("added"), s.name("before"), s.name("changed")
			template := s.createTemplate("t", "", labelsNamespaces(added, "x", before, "x", changed, "x"), deletesObjects,
				func(template *v1alpha1.NamespaceTemplate) { template.Spec.DriftPolicy = v1alpha1.DriftReport })
			probe := s.createTemplate("z-probe", configMap("probe", "0"))
			ns := s.createPopulatedNamespace("a", withLabel(before, "x"))
			waitLabels(s, ns, added, "x", before, "x", changed, "x")
			s.patchLabel(ns, changed, "theirs")
			s.waitUntouched(ns, probe, "1")
			change(s, template)
			waitLabels(s, ns, added, "")
			s.waitUntouched(ns, probe, "2")
			waitLabels(s, ns, before, "x", changed, "theirs")
		})
	}
}

func TestNamespaceMetadataStaysAfterOptOutAndWithOrphan(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	label := s.name("label")
	template := s.createTemplate("t", "", labelsNamespaces(label, "x"))
	probe := s.createTemplate("z-probe", configMap("probe", "0"))
	out, orphaned := s.createPopulatedNamespace("out"), s.createPopulatedNamespace("orphaned")
	s.patchNamespace(out, `{"metadata": {"annotations": {"`+v1alpha1.OptOutAnnotation+`": "`+template.Name+`"}}}`)
	s.waitUntouched(out, probe, "1")
	waitLabels(s, out, label, "x")
	s.patchLabel(out, label, "theirs")
	s.waitUntouched(out, probe, "2")
	waitLabels(s, out, label, "theirs")
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel(testLabel, s.name("none"))
	})
	s.waitUntouched(orphaned, probe, "3")
	waitLabels(s, orphaned, label, "x")
}

func TestTheLaterTemplateDecidesAboutNamespaceMetadata(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	label := s.name("label")
	s.createTemplate("a", "", labelsNamespaces(label, "a"))
	later := s.createTemplate("b", "", labelsNamespaces(label, "b"))
	ns := s.createPopulatedNamespace("n")
	waitLabels(s, ns, label, "b")
	s.waitTemplateStatus(later, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Contains(c, templateCondition(status, v1alpha1.TemplatePopulated).Message, fmt.Sprintf(
			"declared by templates %s and %s (label %s): the declaration of %[2]s is applied", s.name("a"), s.name("b"), label))
	})
	s.delete(later)
	waitLabels(s, ns, label, "a") // it never was missing: the earlier template declares it
}

func TestNamespaceMetadataIsRolledOut(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	label := s.name("label")
	template := s.createTemplate("t", "", labelsNamespaces(label, "x"))
	first := s.createPopulatedNamespace("first", withLabel("wave", s.name("first")))
	second := s.createPopulatedNamespace("second")
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		labelsNamespaces(label, "y")(template)
		template.Spec.Rollout = &v1alpha1.Rollout{Waves: []v1alpha1.Wave{{
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"wave": s.name("first")}},
			PauseSeconds: 3600,
		}}}
	})
	waitLabels(s, first, label, "y")
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		if assert.NotEmpty(c, status.Revisions) {
			assert.Equal(c, v1alpha1.RolloutWaiting, status.Revisions[0].State)
		}
	})
	waitLabels(s, second, label, "x")
}

func TestAdmissionOfNamespaceMetadata(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	label, selecting := s.name("label"), s.name("selecting")
	author := s.newTemplateAuthor("author", policyRule("create patch", "", "configmaps"))
	expectForbidden(t, author.Create(t.Context(), s.newTemplate("t", "", labelsNamespaces(label, "x"))),
		"may not patch namespaces in all namespaces")
	s.grant(s.name("patch"), userSubject(s.name("author")), policyRule("patch", "", "namespaces"))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, author.Create(t.Context(), s.newTemplate("t", "", labelsNamespaces(label, "x")), client.DryRunAll))
	})
	selects := func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel(selecting, "x")
	}
	s.createTemplate("selects", "", selects, disablesTemplate)
	s.createTemplate("sets", "", labelsNamespaces(label, "x"))
	for name, test := range map[string]struct {
		template *v1alpha1.NamespaceTemplate
		want     string
	}{
		"selected by another template": {
			s.newTemplate("t", "", labelsNamespaces(selecting, "y")), "by which template " + s.name("selects") + " selects",
		},
		"selects by what another sets": {
			s.newTemplate("t", "", func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.Overlays = []v1alpha1.Overlay{{Name: "o", Namespaces: selectLabel(label, "x")}}
			}), "which template " + s.name("sets") + " sets (namespaceMetadata)",
		},
		"selected by itself": {
			s.newTemplate("t", "", labelsNamespaces(s.name("own"), "y"), func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.Namespaces = selectLabel(s.name("own"), "x")
			}), "the template itself selects namespaces",
		},
		"own label":    {s.newTemplate("t", "", labelsNamespaces(v1alpha1.PolicySpaceLabel, "y")), "is reserved for nstpl"},
		"initializing": {s.newTemplate("t", "", labelsNamespaces(v1alpha1.InitializingLabel, "y")), "is reserved for nstpl"},
		"depth": {
			s.newTemplate("t", "", labelsNamespaces("a"+v1alpha1.DepthLabelSuffix, "1")), "is reserved for nstpl",
		},
		"name": {
			s.newTemplate("t", "", labelsNamespaces(corev1.LabelMetadataName, "y")), "is reserved for Kubernetes",
		},
		"pod security": {
			s.newTemplate("t", "", labelsNamespaces(enforceLabel, "strict")),
			`spec.namespaceMetadata.labels[` + enforceLabel + `]: "strict" is not a Pod Security Standard`,
		},
	} {
		err := s.client.Create(t.Context(), test.template, client.DryRunAll)
		require.ErrorContains(t, err, test.want, name)
	}
	s.createInitializers(3600, v1alpha1.FailureIgnore, "network")
	require.ErrorContains(t, s.client.Create(t.Context(), s.newTemplate("t", "", labelsNamespaces(testLabel, "y"),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selectLabel(s.name("own"), "x")
		}), client.DryRunAll), "by which NamespaceInitializationConfiguration "+s.name("network")+" selects")
	late := &v1alpha1.NamespaceInitializationConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.name("late")},
		Initializers: []v1alpha1.Initializer{{
			Name: s.name("late"), NamespaceSelector: selectLabel(label, "x").LabelSelector, TimeoutSeconds: 60,
			FailurePolicy: v1alpha1.FailureIgnore,
		}},
	}
	require.ErrorContains(t, s.client.Create(t.Context(), late),
		"an initializer selects namespaces by the label "+label+", which template "+s.name("sets")+" sets")
	late.Initializers[0].NamespaceSelector = selectLabel(selecting, "x").LabelSelector
	require.NoError(t, s.client.Create(t.Context(), late))
	require.ErrorContains(t, s.client.Patch(t.Context(), late, mergePatch(`{"initializers": [{"name": "`+s.name("late")+
		`", "namespaceSelector": {"matchExpressions": [{"key": "`+label+`", "operator": "Exists"}]}}]}`)),
		"which template "+s.name("sets")+" sets")
}

// The API server and the policies of the cluster decide about labels and annotations before a template is stored.
func TestTrialOfNamespaceMetadata(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	label := s.name("cost-center")
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: label},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"},
						},
					},
				}},
			},
			Validations: []admissionregistrationv1.Validation{{
				Expression: fmt.Sprintf("object == null || object.metadata.?labels[?'%s'].orValue('one') in ['one', 'two']", label),
				Message:    "unknown cost center",
			}},
		},
	}
	require.NoError(t, s.client.Create(t.Context(), policy))
	require.NoError(t, s.client.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: label},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: label, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}))
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, s.vet("", labelsNamespaces(label, "three")),
			"spec.namespaceMetadata: ValidatingAdmissionPolicy")
	})
	err := s.vet("", labelsNamespaces(label, "one"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Overlays = []v1alpha1.Overlay{{
			Name: "o", Namespaces: selectLabel("o", "x"),
			NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: map[string]string{label: "four"}},
		}}
	})
	require.ErrorContains(t, err, "spec.overlays[0].namespaceMetadata: ValidatingAdmissionPolicy")
	require.ErrorContains(t, err, "unknown cost center")
	require.NoError(t, s.vet("", labelsNamespaces(label, "two")))
	require.ErrorContains(t, s.vet("", labelsNamespaces(label, "$(CREATOR)")),
		"is not a valid label value if the creator is jane@example.com or a ServiceAccount")
}

// A user who may patch namespaces, but does not hold the role of a protected label, can neither set it through a
// template, nor replace or remove it.
func TestNamespaceMetadataRequiresRolesOfProtectedAttributes(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	env := s.name("env")
	before := s.createTemplate("before", "", labelsNamespaces(env, "prod"))
	role, other := s.createAttributeRole("", "prod"), s.createAttributeRole("", "staging")
	s.protectAttribute("", "prod", s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, role, "prod"))
	s.protectAttribute("", "staging",
		s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, other, "staging"))
	author := s.newTemplateAuthor("author", policyRule("create patch", "", "configmaps"),
		policyRule("patch", "", "namespaces"))
	s.bindClusterRole(s.name("author"), other)
	expectForbidden(t, author.Create(t.Context(), s.newTemplate("t", "", labelsNamespaces(env, "prod"))),
		`may not set label `+env+` of Namespaces to "prod" in all namespaces`)
	// Namespaces that have the value prod would lose it.
	expectForbidden(t, author.Create(t.Context(), s.newTemplate("t", "", labelsNamespaces(env, "staging"))),
		`may not remove label `+env)
	// A template that only reports changes no value, except those of the templates that it overrides.
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, author.Create(t.Context(),
			s.newTemplate("a", "", labelsNamespaces(env, "staging"), reportsDrift), client.DryRunAll))
	})
	expectForbidden(t, author.Create(t.Context(), s.newTemplate("t", "", labelsNamespaces(env, "staging"), reportsDrift)),
		`may not remove label `+env)
	expectForbidden(t, author.Patch(t.Context(), before, mergePatch(`{"spec": {"namespaceMetadata": null}}`)),
		`may not remove label `+env)
}

// A user who may change namespaces cannot make the operator remove or keep a label by what they write into the
// namespace's metadata.
func TestNamespaceMetadataCannotBeForged(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	added, foreign := s.name("added"), s.name("foreign")
	template := s.createTemplate("t", "", labelsNamespaces(added, "x"), deletesObjects)
	probe := s.createTemplate("z-probe", configMap("probe", "0"))
	ns := s.createPopulatedNamespace("a", withLabel(foreign, "x"))
	waitLabels(s, ns, added, "x")
	user := s.newUserWithRules("user", policyRule("get patch update", "", "namespaces"),
		policyRule("create use", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	for _, record := range []string{
		`null`, `"{}"`, fmt.Sprintf("%q", `{"labels":{"`+foreign+`":{"template":"`+template.Name+`","uid":"`+
			string(template.UID)+`","value":"2d711642b726b044"}}}`),
	} {
		expectForbidden(t, user.Patch(t.Context(), ns.DeepCopy(), mergePatch(
			`{"metadata": {"annotations": {"`+v1alpha1.NamespaceMetadataAnnotation+`": `+record+`}}}`)),
			"are managed by the operator")
	}
	forged := ns.DeepCopy()
	forged.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: v1alpha1.NamespaceFieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1",
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:` + foreign + `":{}}}}`),
		Time: &ns.CreationTimestamp,
	}}
	s.eventually(func(c *assert.CollectT) {
		latest := &corev1.Namespace{}
		assert.NoError(c, user.Get(t.Context(), client.ObjectKeyFromObject(ns), latest))
		latest.ManagedFields = forged.ManagedFields
		assert.NoError(c, user.Update(t.Context(), latest))
	})
	s.updateTemplate(template, labelsNamespaces(s.name("next"), "x"))
	waitLabels(s, ns, added, "", s.name("next"), "x")
	s.waitUntouched(ns, probe, "1")
	waitLabels(s, ns, foreign, "x")
}

// Templates that are stored without vetting, of which each selects by the label that the one before sets, select in
// circles nowhere: no label is set by which a template selects.
func TestTemplatesDoNotSelectInCircles(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	for _, ring := range []int{2, 3} {
		s := newScope(t, cluster)
		s.id = fmt.Sprint(s.id, ring)
		require.NoError(t, cluster.operator.Kill())
		s.disableVetting()
		ns := s.newNamespace("a")
		require.NoError(t, s.client.Create(t.Context(), ns))
		var templates []*v1alpha1.NamespaceTemplate
		for i := range ring {
			template := s.newTemplate(fmt.Sprint("t", i), "", deletesObjects,
				labelsNamespaces(s.name(fmt.Sprint("label", i)), "x"), func(template *v1alpha1.NamespaceTemplate) {
					before := metav1.LabelSelectorRequirement{
						Key: s.name(fmt.Sprint("label", (i+ring-1)%ring)), Operator: metav1.LabelSelectorOpExists,
					}
					if i == 0 {
						before.Operator = metav1.LabelSelectorOpDoesNotExist
					}
					template.Spec.Namespaces.LabelSelector.MatchExpressions =
						[]metav1.LabelSelectorRequirement{before}
				})
			require.NoError(t, s.client.Create(t.Context(), template))
			templates = append(templates, template)
		}
		require.NoError(t, cluster.startOperator(t.Context()))
		s.waitNotPopulated(ns, fmt.Sprintf("label %s is not managed, because template %s selects by it",
			s.name("label0"), templates[1%ring].Name))
		for i := range ring {
			waitLabels(s, ns, s.name(fmt.Sprint("label", i)), "")
		}
		s.waitTemplateStatus(templates[0], func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			assert.EqualValues(c, 1, status.Namespaces.Failed)
		})
		// Without the template that selects by it, the label is set, although that template does not select the namespace.
		require.NoError(t, s.client.Delete(t.Context(), templates[1%ring]))
		waitLabels(s, ns, s.name("label0"), "x")
	}
}

func TestARestartWritesNoNamespaceMetadata(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	label := s.name("label")
	template := s.createTemplate("t", configMap("a", "v"), labelsNamespaces(label, "x"))
	ns := s.createPopulatedNamespace("a")
	waitLabels(s, ns, label, "x")
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.EqualValues(c, 1, status.Namespaces.Populated)
		assert.Equal(c, metav1.ConditionTrue, templateCondition(status, v1alpha1.ConditionReady).Status)
	})
	s.expectRestartWritesNothing("namespace")
	require.NoError(t, s.operator.Kill())
	s.patchLabel(ns, label, "other")
	require.NoError(t, s.startOperator(t.Context()))
	waitLabels(s, ns, label, "x")
}

// Users cannot keep templates from labelling a namespace by filling its annotations: the label is written together with
// its record. Neither can they by subresources, or at creation.
func TestAnnotationsOfNamespacesHaveRoomForRecords(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("full")
	s.waitInitialized(ns)
	fill := func(size int) client.Patch {
		return mergePatch(fmt.Sprintf(`{"metadata": {"annotations": {"fill": %q}}}`, strings.Repeat("x", size)))
	}
	const message = "the annotations of a namespace must not take more than 192 KiB"
	const most, allowed = 256<<10 - 500, 190 << 10
	owner := s.newUserWithRules("owner", policyRule("*", "", "namespaces"), policyRule("*", "", "namespaces/status"),
		policyRule("create use", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), fill(most)), message)
	require.ErrorContains(t, owner.Status().Patch(t.Context(), ns.DeepCopy(), fill(most)), message)
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), mergePatch(fmt.Sprintf(
		`{"metadata": {"annotations": {"fill": %q}}}`, strings.Repeat("é", most/2)))), message)
	many := map[string]string{}
	for i := range 500 {
		many[fmt.Sprintf("example.com/%d", i)] = strings.Repeat("x", 450)
	}
	require.ErrorContains(t, owner.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.name("many"), Annotations: many,
	}}), message)
	require.NoError(t, owner.Patch(t.Context(), ns.DeepCopy(), fill(allowed)))
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), fill(allowed+4<<10)), message)
	// A program that applies a tree still adds what the tree declares.
	sync := s.newUserWithRules("sync", policyRule("*", "", "namespaces"),
		policyRule("create patch", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	declared := mergePatch(fmt.Sprintf(`{"metadata": {"annotations": {"declared": %q}}}`, strings.Repeat("x", 4<<10)))
	require.NoError(t, sync.Patch(t.Context(), ns.DeepCopy(), declared))
	require.ErrorContains(t, sync.Patch(t.Context(), ns.DeepCopy(), fill(222<<10)), message)
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), mergePatch(fmt.Sprintf(
		`{"metadata": {"annotations": {"declared": null, "other": %q}}}`, strings.Repeat("x", 4<<10)))), message,
		"a user who replaces what is restored adds nothing")

	label := s.name("enforce")
	template := s.createTemplate("t", "", labelsNamespaces(label, "restricted"), deletesObjects)
	waitLabels(s, ns, label, "restricted")
	require.NoError(t, owner.Patch(t.Context(), ns.DeepCopy(), fill(allowed)), "what does not grow is allowed")
	require.NoError(t, s.client.Delete(t.Context(), template))
	waitLabels(s, ns, label, "")
}

// What else users may write on a namespace must not fill what etcd stores either.
func TestNamespacesHaveRoomForRecords(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("full")
	s.waitInitialized(ns)
	owner := s.newUserWithRules("owner", policyRule("*", "", "namespaces"), policyRule("*", "", "namespaces/status"),
		policyRule("create use", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	const message = "may have at most 256 labels, 1000 annotations, and 64 finalizers and owners"
	full := func(n int) *corev1.Namespace {
		labels := map[string]string{}
		for i := range n {
			labels[fmt.Sprint("label-", i)] = "x"
		}
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("new"), Labels: labels}}
	}
	finalizers := func(n int) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint("example.com/", i)
		}
		return all
	}
	patch := func(metadata map[string]any) client.Patch {
		body, err := json.Marshal(map[string]any{"metadata": metadata})
		require.NoError(t, err)
		return client.RawPatch(types.MergePatchType, body)
	}
	require.ErrorContains(t, owner.Create(t.Context(), full(300)), message)
	require.NoError(t, owner.Create(t.Context(), full(200), client.DryRunAll))
	labels := patch(map[string]any{"labels": full(300).Labels})
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), labels), message)
	require.ErrorContains(t, owner.Status().Patch(t.Context(), ns.DeepCopy(), labels), message)
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(),
		patch(map[string]any{"finalizers": finalizers(65)})), message)
	require.NoError(t, owner.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{"finalizers": finalizers(64)})))
	require.NoError(t, owner.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{"finalizers": nil})))
	kept := full(0)
	kept.Spec.Finalizers = slices.Repeat([]corev1.FinalizerName{"example.com/same"}, 65)
	require.ErrorContains(t, owner.Create(t.Context(), kept), message)
	owned := full(0)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}}
	require.NoError(t, owner.Create(t.Context(), owned.DeepCopy(), client.DryRunAll))
	owned.OwnerReferences[0].Name = strings.Repeat("é", 600)
	require.ErrorContains(t, owner.Create(t.Context(), owned), "must not have more than 1024 bytes")
	condition := func(size int) client.Patch {
		return mergePatch(fmt.Sprintf(
			`{"status": {"conditions": [{"type": "example.com/a", "status": "True", "message": %q}]}}`,
			strings.Repeat("x", size)))
	}
	require.NoError(t, owner.Status().Patch(t.Context(), ns.DeepCopy(), condition(60<<10)))
	require.ErrorContains(t, owner.Status().Patch(t.Context(), ns.DeepCopy(), condition(70<<10)),
		"must not have more than 65536 bytes")
	require.NoError(t, owner.Status().Patch(t.Context(), ns.DeepCopy(), mergePatch(`{"status": {"conditions": null}}`)))

	annotations := map[string]string{}
	for i := range 5000 {
		annotations[strconv.FormatInt(int64(36*36+i), 36)] = ""
	}
	many := patch(map[string]any{"annotations": annotations})
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), many), message)
	require.ErrorContains(t, owner.Status().Patch(t.Context(), ns.DeepCopy(), many), message)

	// A program that applies a tree restores a label that a user replaced by others.
	require.NoError(t, owner.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{"labels": full(250).Labels})))
	found := &corev1.Namespace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
	rest := map[string]string{}
	for i := range 256 - len(found.Labels) {
		rest[fmt.Sprint("rest-", i)] = "x"
	}
	require.NoError(t, owner.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{"labels": rest})))
	declared := patch(map[string]any{"labels": map[string]string{s.name("declared"): "x"}})
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), declared), message)
	sync := s.newUserWithRules("sync", policyRule("*", "", "namespaces"),
		policyRule("create patch", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	require.NoError(t, sync.Patch(t.Context(), ns.DeepCopy(), declared))
	require.ErrorContains(t, sync.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{
		"labels": full(600).Labels,
	})), message)

	// A user who replaces what was restored adds none, as otherwise one more each time, up to the limit of the program.
	replace := patch(map[string]any{"labels": map[string]any{s.name("declared"): nil, "one-more": "x"}})
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), replace), message)
	require.NoError(t, owner.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{
		"labels": map[string]any{s.name("declared"): nil, "rest-0": nil},
	})))
	require.NoError(t, sync.Patch(t.Context(), ns.DeepCopy(), declared))

	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
	fill := map[string]string{}
	for i := range 1000 - len(found.Annotations) {
		fill[fmt.Sprint("fill-", i)] = "x"
	}
	require.NoError(t, owner.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{"annotations": fill})))
	require.NoError(t, sync.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{
		"annotations": map[string]string{"restored": "x"},
	})))
	require.ErrorContains(t, owner.Patch(t.Context(), ns.DeepCopy(), patch(map[string]any{
		"annotations": map[string]any{"restored": nil, "one-more": "x"},
	})), message)
}

// Kubernetes deletes a namespace none of whose owners exists. A user who may only patch namespaces cannot have it do so.
func TestOwnersOfNamespacesAreGuarded(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("owned")
	s.waitInitialized(ns)
	patcher := s.newUserWithRules("patcher", policyRule("get patch", "", "namespaces namespaces/status"),
		policyRule("create", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "gone"}
	owned := func(owners ...metav1.OwnerReference) client.Patch {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"ownerReferences": owners}})
		require.NoError(t, err)
		return client.RawPatch(types.MergePatchType, body)
	}
	const message = "may not change the owners of namespace "
	expectForbidden(t, patcher.Patch(t.Context(), ns.DeepCopy(), owned(owner)), message)
	expectForbidden(t, patcher.Status().Patch(t.Context(), ns.DeepCopy(), owned(owner)), message)
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace}}
	expectForbidden(t, patcher.Patch(t.Context(), system, owned(owner), client.DryRunAll), message)

	// One that exists keeps the namespace. It can be removed, and not be replaced.
	parent := s.createNamespace("parent")
	owner.Name, owner.UID = parent.Name, parent.UID
	require.NoError(t, s.client.Patch(t.Context(), ns.DeepCopy(), owned(owner)))
	s.patchLabel(ns, "a", "b")
	require.NoError(t, patcher.Patch(t.Context(), ns.DeepCopy(), mergePatch(`{"metadata": {"labels": {"a": "c"}}}`)))
	other := owner
	other.Name = "gone"
	expectForbidden(t, patcher.Patch(t.Context(), ns.DeepCopy(), owned(other)), message)
	require.NoError(t, patcher.Patch(t.Context(), ns.DeepCopy(), owned()))
	s.grant(s.name("deletes"), userSubject(s.name("patcher")), policyRule("delete", "", "namespaces", ns.Name))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, patcher.Patch(t.Context(), ns.DeepCopy(), owned(owner), client.DryRunAll))
	})
}
