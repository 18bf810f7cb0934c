package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// enters has a user without rights on templates label a namespace so that a template selects it, and waits until the
// namespace is populated with the revision that has not the value "two".
func (s *testScope) enters(tenant testUser, ns *corev1.Namespace, labels string) {
	s.t.Helper()
	require.NoError(s.t, tenant.patchesNamespace(ns.Name, `{"metadata": {"labels": `+labels+`}}`))
	waitValues(s, []*corev1.Namespace{ns}, map[string]int{"one": 1})
	s.createTemplate("marker", configMap("marker", "v"))
	s.waitPresent(ns, configMap("marker", "v")) // the operator has reconciled the namespace again
}

// A namespace that enters a template while its rollout is paused or has stopped has an earlier revision. What the
// newest one has ended does not come back in it, whatever keeps it in the namespaces that had it.
func TestANamespaceThatEntersLaterGetsNothingThatHasEnded(t *testing.T) {
	narrower := documents(configValue("two"), grantTo("shared", "b", "c"), readerOf("list, watch"))
	gold := `{"class": "gold"}`
	conflict := func(template *v1alpha1.NamespaceTemplate) {
		overlay := func(name, patch string) v1alpha1.Overlay {
			return v1alpha1.Overlay{
				Name: name, Patches: []v1alpha1.Patch{{Patch: patch}},
				Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{name: "yes"},
				}},
			}
		}
		const of = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\n"
		template.Spec.Overlays = []v1alpha1.Overlay{
			overlay("first", "$patch: delete\n"+of), overlay("second", of+"data: {a: b}\n"),
		}
	}
	for name, test := range map[string]struct {
		change  func(s *testScope, template *v1alpha1.NamespaceTemplate)
		state   v1alpha1.RolloutState
		labels  string
		guarded bool
		// shared and verbs are what the namespace gets of the RoleBinding "shared" and the Role "reader".
		shared, verbs []string
	}{
		"paused": {
			change: func(_ *testScope, template *v1alpha1.NamespaceTemplate) { pausesRollout(template) },
			labels: gold, shared: []string{"b"}, verbs: []string{"list"},
		},
		"a template that requires permission": {
			change:  func(_ *testScope, template *v1alpha1.NamespaceTemplate) { pausesRollout(template) },
			guarded: true, labels: gold, shared: []string{"b"}, verbs: []string{"list"},
		},
		"stopped": {
			change: func(s *testScope, template *v1alpha1.NamespaceTemplate) {
				template.Spec.Templates = rawObjects(s.t, documents(narrower, fixedValue("two")))
				template.Spec.Rollout = &v1alpha1.Rollout{Waves: []v1alpha1.Wave{{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "old"}},
				}}}
			},
			state: v1alpha1.RolloutStopped, labels: gold, shared: []string{"b"}, verbs: []string{"list"},
		},
		"kept by others until the rollout arrives": {
			change: func(_ *testScope, template *v1alpha1.NamespaceTemplate) {
				template.Spec.Rollout = &v1alpha1.Rollout{Paused: true, Revocation: v1alpha1.RevokeWithRollout}
			},
			labels: gold, shared: []string{"b"}, verbs: []string{"list"},
		},
		"no longer selected, and orphaned": {
			change: func(s *testScope, template *v1alpha1.NamespaceTemplate) {
				pausesRollout(template)
				template.Spec.DeletionPolicy = v1alpha1.DeletionOrphan
				s.selectsClass("class", "silver")(template)
			},
			labels: gold,
		},
		"the newest revision cannot be rendered": {
			change: func(_ *testScope, template *v1alpha1.NamespaceTemplate) {
				pausesRollout(template)
				conflict(template)
			},
			labels: `{"class": "gold", "first": "yes", "second": "yes"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			vault := newSources(s)
			s.createObjects(vault.Name, secret("pull", "v"))
			letOperatorGet(s, vault, "secrets", "pull")
			template := s.createTemplate("grants", documents(configValue("one"), fixedValue("one"), grantTo("owner", "owner"),
				grantTo("shared", "a", "b"), readerOf("get, list")), deletesObjects, s.selectsClass("class", "gold"),
				copies(sourceOf("Secret", vault, "pull")), func(template *v1alpha1.NamespaceTemplate) {
					if test.guarded {
						requiresUse(template)
					}
				})
			tenant := s.newUser(s.name("tenant"))
			if test.guarded {
				tenant.grant("use", v1alpha1.NamespaceTemplates.Resource, template.Name)
			}
			old := s.createPopulatedNamespace("old", withLabel("class", "gold"), withLabel("stage", "old"))
			ns := s.createNamespace("enters")
			s.waitInitialized(ns)
			s.waitRollout(template, v1alpha1.RolloutComplete)
			s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
				template.Spec.Templates, template.Spec.Sources = rawObjects(t, narrower), nil
				test.change(s, template)
			})
			if test.state == "" {
				test.state = v1alpha1.RolloutPaused
			}
			s.waitRollout(template, test.state)

			s.enters(tenant, ns, test.labels)
			assert.Empty(t, s.subjectsOf(ns, "owner"))
			assert.Equal(t, test.shared, s.subjectsOf(ns, "shared"))
			assert.Equal(t, test.verbs, s.verbsOf(ns, "reader"))
			s.waitAbsent(ns, secret("pull", ""))
			if test.state == v1alpha1.RolloutPaused {
				s.waitPresent(old, secret("pull", "v"))
			}
		})
	}
}

// A namespace in which grants have ended does not get them back, although its owner removes it from the wave that has
// the newest revision.
func TestEndedGrantsDoNotComeBack(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	tenant := s.newUser(s.name("tenant"))
	template := s.createTemplate("grants", documents(grantTo("shared", "a", "b"), configValue("one")), deletesObjects)
	reached := s.createPopulatedNamespace("reached", withLabel("stage", "canary"))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout = &v1alpha1.Rollout{
			Revocation: v1alpha1.RevokeWithRollout,
			Waves: []v1alpha1.Wave{{
				Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "canary"}},
				PauseSeconds: 3600,
			}},
		}
		withObjects(t, documents(grantTo("shared", "b"), configValue("two")))(template)
	})
	waitValues(s, []*corev1.Namespace{reached}, map[string]int{"two": 1})
	s.eventually(func(c *assert.CollectT) { assert.Equal(c, []string{"b"}, s.subjectsOf(reached, "shared")) })
	s.waitRollout(template, v1alpha1.RolloutWaiting)
	require.NoError(t, tenant.patchesNamespace(reached.Name, `{"metadata": {"labels": {"stage": null}}}`))
	waitValues(s, []*corev1.Namespace{reached}, map[string]int{"one": 1})
	s.createTemplate("marker", configMap("marker", "v"))
	s.waitPresent(reached, configMap("marker", "v"))
	assert.Equal(t, []string{"b"}, s.subjectsOf(reached, "shared"))
}
