package policyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestGoesOnFrom(t *testing.T) {
	t.Parallel()
	stored := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "5"}}
	stored.Status.Used = resourceList("pods", "3")
	require.True(t, goesOnFrom(stored, podsChange("a", "3", "4", "5")))
	require.False(t, goesOnFrom(stored, podsChange("a", "3", "4", "4")), "an earlier version")
	require.False(t, goesOnFrom(stored, podsChange("a", "2", "4", "5")), "another usage")
	require.False(t, goesOnFrom(&corev1.ResourceQuota{}, podsChange("a", "3", "4", "5")), "a deleted usage quota")
}
