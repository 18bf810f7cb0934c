package constraint

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
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

// Other admission may have changed a pod that no constraints apply to, such as a LimitRange.
func TestATriedPodWithoutConstraintsMayBeChanged(t *testing.T) {
	t.Parallel()
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := &review{Session: cli.NewSession(streams)}
	changed := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "a"}}}}
	require.NoError(t, o.explain(result{
		Object: "pod/web", Allowed: true, isTried: true, original: &corev1.Pod{}, Pod: changed,
	}))
	require.Equal(t, "pod/web is admitted, and no constraints apply to it\n", out.String())
}
