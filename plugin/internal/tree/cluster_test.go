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

func TestCommitOfATree(t *testing.T) {
	repository := func(tree, applied string) v1alpha1.PolicyRepository {
		return v1alpha1.PolicyRepository{Status: v1alpha1.PolicyRepositoryStatus{
			Tree: tree, Commits: v1alpha1.RepositoryCommits{Fetched: "f", Applied: applied},
		}}
	}
	repositories := []v1alpha1.PolicyRepository{
		repository("", "0"), repository("other", "1"), repository("shop", ""), repository("shop", "2"),
	}
	require.Equal(t, "2", commitOf(repositories, "shop"))
	require.Equal(t, "1", commitOf(repositories, "other"))
	require.Empty(t, commitOf(repositories, "unknown"))
}
