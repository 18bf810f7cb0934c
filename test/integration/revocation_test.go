package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

const rbacGroup = "apiGroup: rbac.authorization.k8s.io, "

// grantTo returns a RoleBinding to the ClusterRole admin.
func grantTo(name string, users ...string) string {
	subjects := ""
	for _, user := range users {
		subjects += "{" + rbacGroup + "kind: User, name: " + user + "},"
	}
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: " + name + "}, " +
		"roleRef: {" + rbacGroup + "kind: ClusterRole, name: admin}, subjects: [" + subjects + "]}"
}

// readerOf returns a Role for Secrets.
func readerOf(verbs string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader}, " +
		"rules: [{apiGroups: [''], resources: [secrets], verbs: [" + verbs + "]}]}"
}

// subjectsOf returns the names of the subjects of a RoleBinding, or none if it does not exist.
func (s *testScope) subjectsOf(ns *corev1.Namespace, name string) []string {
	binding := &rbacv1.RoleBinding{}
	if s.client.Get(s.t.Context(), client.ObjectKey{Namespace: ns.Name, Name: name}, binding) != nil {
		return nil
	}
	var names []string
	for _, subject := range binding.Subjects {
		names = append(names, subject.Name)
	}
	return names
}

func (s *testScope) verbsOf(ns *corev1.Namespace, name string) []string {
	role := &rbacv1.Role{}
	if s.client.Get(s.t.Context(), client.ObjectKey{Namespace: ns.Name, Name: name}, role) != nil || len(role.Rules) == 0 {
		return nil
	}
	return role.Rules[0].Verbs
}

// What a change takes away ends in all namespaces, although the rollout is paused. What it adds does not arrive.
func TestRevocationsDoNotWaitForAPausedRollout(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", documents(grantTo("owner", "owner"), grantTo("shared", "a", "b"),
		readerOf("get, list"), configValue("one")), deletesObjects)
	var namespaces []*corev1.Namespace
	for i := range 3 {
		namespaces = append(namespaces, s.createPopulatedNamespace(fmt.Sprint("n", i)))
	}
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.updateTemplate(template, withRollout(&v1alpha1.Rollout{Paused: true}))
	s.updateTemplate(template, withObjects(t, documents(grantTo("shared", "b", "c"), grantTo("new", "d"),
		readerOf("list, watch"), configValue("two"))))
	s.waitRollout(template, v1alpha1.RolloutPaused)
	for _, ns := range namespaces {
		s.eventually(func(c *assert.CollectT) {
			assert.Empty(c, s.subjectsOf(ns, "owner"))
			assert.Equal(c, []string{"b"}, s.subjectsOf(ns, "shared"))
			assert.Equal(c, []string{"list"}, s.verbsOf(ns, "reader"))
		})
		assert.Empty(t, s.subjectsOf(ns, "new"))
	}
	waitValues(s, namespaces, map[string]int{"one": 3})

	s.updateTemplate(template, withRollout(nil))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	waitValues(s, namespaces, map[string]int{"two": 3})
	for _, ns := range namespaces {
		s.eventually(func(c *assert.CollectT) {
			assert.Equal(c, []string{"b", "c"}, s.subjectsOf(ns, "shared"))
			assert.Equal(c, []string{"list", "watch"}, s.verbsOf(ns, "reader"))
			assert.Equal(c, []string{"d"}, s.subjectsOf(ns, "new"))
		})
	}
}

// Grants end in all namespaces, also if a rollout stops, since its objects fail.
func TestAStoppedRolloutKeepsNoGrant(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", documents(grantTo("owner", "owner"), fixedValue("one")), deletesObjects)
	var namespaces []*corev1.Namespace
	for i := range 3 {
		namespaces = append(namespaces, s.createPopulatedNamespace(fmt.Sprint("n", i)))
	}
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.updateTemplate(template, withObjects(t, fixedValue("two")))
	s.waitRollout(template, v1alpha1.RolloutStopped)
	for _, ns := range namespaces {
		s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.subjectsOf(ns, "owner")) })
	}
}

// A failure that users of a namespace can prepare stops no rollout, and keeps no grant.
func TestAFailureOfATenantStopsNoRollout(t *testing.T) {
	for name, prepare := range map[string]func(s *testScope, ns *corev1.Namespace){
		"immutable": func(s *testScope, ns *corev1.Namespace) {
			config := theConfigMap("config")
			config.Namespace = ns.Name
			assert.NoError(s.t, s.client.Patch(s.t.Context(), config, mergePatch(`{"immutable": true}`)))
		},
		"an object in the way": func(s *testScope, ns *corev1.Namespace) {
			s.createObjects(ns.Name, "{apiVersion: v1, kind: ConfigMap, metadata: {name: new}, immutable: true}")
		},
		"a quota": func(s *testScope, ns *corev1.Namespace) {
			s.createObjects(ns.Name, "{apiVersion: v1, kind: ResourceQuota, metadata: {name: none}, "+
				"spec: {hard: {count/configmaps: 1}}}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			template := s.createTemplate("grants", documents(grantTo("owner", "owner"), configValue("one")), deletesObjects)
			var namespaces []*corev1.Namespace
			for i := range 3 {
				namespaces = append(namespaces, s.createPopulatedNamespace(fmt.Sprint("n", i)))
			}
			s.waitRollout(template, v1alpha1.RolloutComplete)
			for _, ns := range namespaces[1:] {
				prepare(s, ns)
			}
			s.updateTemplate(template, withObjects(t, documents(configValue("two"), configMap("new", "v"))))
			s.waitRollout(template, v1alpha1.RolloutComplete)
			waitValues(s, namespaces[:1], map[string]int{"two": 1})
			for _, ns := range namespaces {
				s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.subjectsOf(ns, "owner")) })
			}
			for _, ns := range namespaces[1:] {
				s.waitNotPopulated(ns, "configmap/")
			}
		})
	}
}

// A template that names the creator is not rendered completely in a namespace without one. What it no longer declares
// ends there all the same.
func TestANamespaceWithoutCreatorKeepsNoRevokedGrant(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := &corev1.Namespace{} // Kubernetes itself created it
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: "default"}, ns))
	require.NotContains(t, ns.Annotations, v1alpha1.CreatorAnnotation)
	name := s.name("owner")
	template := s.createTemplate("grants", grantTo(name, "owner"), deletesObjects,
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selectLabel(corev1.LabelMetadataName, ns.Name)
		})
	s.eventually(func(c *assert.CollectT) { assert.Equal(c, []string{"owner"}, s.subjectsOf(ns, name)) })
	s.updateTemplate(template, withObjects(t, grantTo(s.name("creator"), "$(CREATOR)")))
	s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.subjectsOf(ns, name)) })
	s.delete(template)
}

// A narrower selector takes grants away as well, while WithRollout keeps them until the rollout arrives.
func TestANarrowerSelectorRevokesDuringAPausedRollout(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", documents(grantTo("owner", "owner"), configValue("one")), deletesObjects)
	ns := s.createPopulatedNamespace("a")
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.updateTemplate(template, withRollout(
		&v1alpha1.Rollout{Paused: true, Revocation: v1alpha1.RevokeWithRollout}))
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchLabels[tierLabel] = "other"
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	s.createTemplate("marker", configMap("seen", "v"))
	s.waitPresent(ns, configMap("seen", "v")) // the operator has reconciled the namespace
	assert.Equal(t, []string{"owner"}, s.subjectsOf(ns, "owner"))

	s.updateTemplate(template, withRollout(&v1alpha1.Rollout{Paused: true}))
	s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.subjectsOf(ns, "owner")) })
	waitValues(s, []*corev1.Namespace{ns}, map[string]int{"one": 1})
}

// A user who may only write templates may pause a rollout, but not choose that grants are kept.
func TestKeepingRevokedGrantsRequiresTheRightsToDeclareThem(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", grantTo("owner", "owner"), deletesObjects)
	pauser := s.newTemplateAuthor("pauser")
	patch := func(rollout string) error {
		return pauser.Patch(t.Context(), template.DeepCopy(), mergePatch(`{"spec": {"rollout": `+rollout+`}}`))
	}
	assert.NoError(t, patch(`{"paused": true}`))
	assert.ErrorContains(t, patch(`{"revocation": "WithRollout"}`), "rolebindings")
}
