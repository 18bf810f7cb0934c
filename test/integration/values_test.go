package integration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// updateRaw changes the only object of a template without a decoder of numbers in between.
func (s templateFixture) updateRaw(template *v1alpha1.NamespaceTemplate, object string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(template), template))
		template.Spec.Templates = []runtime.RawExtension{{Raw: []byte(object)}}
		require.NoError(c, s.client.Update(s.t.Context(), template))
	})
	s.waitTemplateObserved(template)
}

// float64 has 53 bits for integers, so a decoder with float64 takes these two numbers for the same.
func TestIntegersThatFloatsRoundToTheSame(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	kind := strings.NewReplacer("widgets", "tallies", "widget", "tally", "Widget", "Tally")
	s.applyYAML(kind.Replace(widgetDefinition))
	tally := func(size string) string {
		return `{"apiVersion":"example.com/v1","kind":"Tally","metadata":{"name":"t"},"spec":{"size":` + size + `}}`
	}
	template := s.createTemplate("numbers", tally("9007199254740993"))
	ns := s.createPopulatedNamespace("a")
	size := func(want string) {
		t.Helper()
		s.eventually(func(c *assert.CollectT) {
			got, err := s.kubectl(t.Context(), "", "get", "tallies.example.com", "t", "--namespace", ns.Name,
				"--output", "jsonpath={.spec.size}")
			require.NoError(c, err)
			assert.Equal(c, want, got)
		})
	}
	size("9007199254740993")
	revision := s.waitRollout(template, v1alpha1.RolloutComplete)
	stored := &appsv1.ControllerRevision{}
	require.NoError(t, s.client.Get(t.Context(),
		client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: revision.Name}, stored))
	require.Contains(t, string(stored.Data.Raw), "9007199254740993", "rollout undo writes what is stored here")

	s.updateRaw(template, tally("9007199254740992"))
	size("9007199254740992")
	s.waitPopulated(ns)
}

// kubectl apply sends no nulls, kubectl create does.
func TestNullInATemplateIsNoChange(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const withNulls = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","creationTimestamp":null},` +
		`"data":{"gone":null,"kept":"YQ=="},"stringData":null}`
	template := s.createTemplate("nulls", withNulls)
	ns := s.createPopulatedNamespace("a")
	before := s.waitRollout(template, v1alpha1.RolloutComplete)
	writes := s.countWrites(ns)["patch secrets"]

	s.updateRaw(template, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"kept":"YQ=="}}`)
	after := s.waitRollout(template, v1alpha1.RolloutComplete)
	require.Equal(t, before.Name, after.Name, "a revision of the same content")
	require.Equal(t, writes, s.countWrites(ns)["patch secrets"])
}

// A RoleBinding that a person made is not deleted, and what the condition says is what must be done.
func TestRoleBindingWithAnotherRoleRefIsNotAdopted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	binding := func(role string) string {
		return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: b}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role + "}\n"
	}
	ns := s.createNamespace("a")
	s.createObjects(ns.Name, binding("edit"))
	s.createTemplate("defaults", binding("view"))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, "cannot be adopted: it existed before nstpl managed it: delete it yourself")
	})
	s.waitPresent(ns, binding("edit"))
	s.deleteIn(ns, binding("edit"))
	s.waitPopulated(ns)
	s.waitPresent(ns, binding("view"))
}
