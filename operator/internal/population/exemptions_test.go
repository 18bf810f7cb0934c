package population

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A namespace does not have the exemptions of an earlier one of its name, which the cache may still contain.
func TestIsOfEarlierNamespace(t *testing.T) {
	t.Parallel()
	created := metav1.NewTime(time.Now())
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}}
	for age, want := range map[time.Duration]bool{time.Second: true, 0: false} {
		exemption := &v1alpha1.TemplateExemption{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created.Add(-age))},
		}
		require.Equal(t, want, isOfEarlierNamespace(exemption, ns), age)
	}
}
