package tree

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAddQuotasKeepsTheSmallestLimit(t *testing.T) {
	quota := func(namespace, hard, used string) corev1.ResourceQuota {
		return corev1.ResourceQuota{
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
	n.addQuotas([]corev1.ResourceQuota{
		quota("shop", "10", "3"), quota("shop", "9", "2"), quota("shop", "1k", "1"), quota("other", "1", "1"),
	})
	require.Equal(t, map[string]string{"pods": "9"}, n.Quota)
	require.Equal(t, map[string]string{"pods": "2"}, n.Used)
}
