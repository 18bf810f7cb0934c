package counters_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/counters"
)

// What is not counted yet is not known to be used, and after a while known not to be counted. What is counted stays as it is.
func TestUsed(t *testing.T) {
	t.Parallel()
	const pods, gpus = corev1.ResourcePods, corev1.ResourceName("nvidia.com/gpu")
	counted := corev1.ResourceList{pods: resource.MustParse("3")}
	all := corev1.ResourceList{pods: resource.MustParse("3"), gpus: {}}
	long := time.Now().Add(-2 * counters.Uncountable)
	for name, test := range map[string]struct {
		told    string
		created time.Time
		want    corev1.ResourceList
	}{
		"just told":              {time.Now().Format(time.RFC3339Nano), long, counted},
		"told long ago":          {long.Format(time.RFC3339Nano), long, all},
		"not told, just created": {"", time.Now(), counted},
		"not told, old":          {"", long, all},
		"told what is no time":   {"soon", long, all},
	} {
		counter := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(test.created), Annotations: map[string]string{v1alpha1.RecountAnnotation: test.told}},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{pods: resource.MustParse("9"), gpus: resource.MustParse("9")}},
			Status:     corev1.ResourceQuotaStatus{Used: counted},
		}
		require.Equal(t, test.want, counters.Used(counter), name)
		require.Len(t, counter.Status.Used, 1, "it is of a cache, and not to be changed")
	}
}
