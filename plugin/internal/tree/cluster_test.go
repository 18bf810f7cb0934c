package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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
