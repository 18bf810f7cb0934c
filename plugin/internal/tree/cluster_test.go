package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

func TestAddQuotasKeepsTheSmallestLimit(t *testing.T) {
	quota := func(namespace, hard, used string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			Spec: corev1.ResourceQuotaSpec{
				Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(hard)},
			},
			Status: corev1.ResourceQuotaStatus{
				Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(used)},
			},
		}
	}
	n := &node{Name: "shop", Quota: map[string]string{}, Used: map[string]string{}}
	scoped, selected := quota("shop", "0", "0"), quota("shop", "1", "0")
	scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	selected.Spec.ScopeSelector = &corev1.ScopeSelector{}
	n.addQuotas(quotasOfNamespaces([]*corev1.ResourceQuota{
		quota("shop", "10", "3"), quota("shop", "9", "2"), quota("shop", "1k", "1"), quota("other", "1", "1"),
		scoped, selected,
	})["shop"])
	require.Equal(t, map[string]string{"pods": "9"}, n.Quota)
	require.Equal(t, map[string]string{"pods": "2"}, n.Used)
}

// What Kubernetes has not counted is unknown, and not 0. Nor is the usage of a greater limit that of the smallest.
func TestAddQuotasKnowsNoUsageThatIsNotCounted(t *testing.T) {
	counted := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
	greater, smallest := &corev1.ResourceQuota{}, &corev1.ResourceQuota{}
	greater.Spec.Hard, greater.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}, counted
	smallest.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}
	n := &node{Name: "shop", Quota: map[string]string{}, Used: map[string]string{}}
	n.addQuotas([]*corev1.ResourceQuota{greater, smallest})
	require.Equal(t, "pods=9", n.quota())
}

// The same holds for a policyspace: its status has the sum over the namespaces that have counted.
func TestSpacesShowNoUsageThatIsNotCountedEverywhere(t *testing.T) {
	list := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}
	space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: list}
	space.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
	require.Equal(t, "pods=9", newSpaceNode(space, nil).quota())
	space.Status.Hard = list
	require.Equal(t, "pods=3/9", newSpaceNode(space, nil).quota())
	space.Status.Uncounted = []string{"web"}
	require.Equal(t, "pods=9", newSpaceNode(space, nil).quota())
}

// A template that cannot be rendered may declare RoleBindings.
func TestATemplateThatCannotBeRenderedIsAProblemOfItsNamespaces(t *testing.T) {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "viewers"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	template.Spec.Templates = []runtime.RawExtension{{Raw: []byte(`{"kind": "RoleBinding"}`)}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	n := &node{Name: "shop", Kind: namespaceKind, Problem: "policyspace \"web\" not found"}
	n.addPolicies(survey.Declare(render.NewCache(), nil, match.NewIndex(template), ns))
	require.Contains(t, n.title(), `shop  (policyspace "web" not found; `)
	require.Contains(t, n.title(), "template viewers")
}

// A tree that is being applied has objects of two commits.
func TestCommitOfATree(t *testing.T) {
	repository := func(tree, vetted, applied string) v1alpha1.PolicyRepository {
		return v1alpha1.PolicyRepository{Status: v1alpha1.PolicyRepositoryStatus{
			Tree: tree, Commits: v1alpha1.RepositoryCommits{Fetched: "f", Vetted: vetted, Applied: applied},
		}}
	}
	repositories := []v1alpha1.PolicyRepository{
		repository("", "0", "0"), repository("other", "1", "1"), repository("shop", "", ""), repository("shop", "2", "2"),
		repository("applying", "3", "2"), repository("moving", "4", "4"), repository("failing", "5", "5"),
		repository("broken", "6", "6"),
	}
	// The other directory of spec.path can be in the same commit.
	for i, reason := range []string{
		v1alpha1.RepositoryProgressing, v1alpha1.RepositoryObjectsFailed, v1alpha1.RepositoryViolations,
	} {
		repositories[5+i].Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason}}
	}
	require.Equal(t, "2", commitOf(repositories, "shop"))
	require.Equal(t, "1", commitOf(repositories, "other"))
	require.Empty(t, commitOf(repositories, "unknown"))
	require.Empty(t, commitOf(repositories, "applying"))
	require.Empty(t, commitOf(repositories, "moving"))
	require.Empty(t, commitOf(repositories, "failing"))
	require.Equal(t, "6", commitOf(repositories, "broken"), "violations of a newer commit")
}

// A policyspace has the RoleBindings of the last accepted change of a template.
func TestTemplatesInForce(t *testing.T) {
	template := func(name string, generation int64, revisions ...v1alpha1.TemplateRevision) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
		template.Spec.Templates = []runtime.RawExtension{{Raw: []byte(name)}}
		template.Status.Revisions = revisions
		return template
	}
	revision := v1alpha1.TemplateRevision{Name: "r", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete}
	stored := []*v1alpha1.NamespaceTemplate{template("never", 1), template("changed", 2, revision)}
	accepted := &v1alpha1.NamespaceTemplateSpec{Templates: []runtime.RawExtension{{Raw: []byte("accepted")}}}
	index := match.NewIndex(stored...)
	index.SetLayers(stored[1], rollout.New(stored[1], stored[1].Status.Revisions,
		map[string]*v1alpha1.NamespaceTemplateSpec{"r": accepted}))
	got := inForce(index, stored)
	require.Len(t, got, 1)
	require.Equal(t, "changed", got[0].Name)
	require.Equal(t, "accepted", string(got[0].Spec.Templates[0].Raw))
}
