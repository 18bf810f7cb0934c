package constraint

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestFieldsSet(t *testing.T) {
	original := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}}}
	admitted := original.DeepCopy()
	admitted.Spec.SecurityContext = &corev1.PodSecurityContext{
		FSGroup: new(int64(7)), SupplementalGroups: []int64{1, 2},
	}
	admitted.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: new(true)}
	sets, err := fieldsSet(original, admitted)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"spec.securityContext.fsGroup":                    "7",
		"spec.securityContext.supplementalGroups":         "[1,2]",
		"spec.containers[0].securityContext.runAsNonRoot": "true",
	}, sets)
}
