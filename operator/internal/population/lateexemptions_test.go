package population

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// The cache may show the last status of an exemption while a pass goes on that has read the one before.
func TestAStatusOfAnExemptionThatArrivesDuringAPassIsReplaced(t *testing.T) {
	t.Parallel()
	_, api := newClusterWithTemplates(t)
	exemption := &v1alpha1.TemplateExemption{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default"},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: "t", Reason: "a test"},
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.NoError(c, api.Create(t.Context(), exemption))
	}, 30*time.Second, 50*time.Millisecond)
	r := &Namespaces{Client: api}
	plan := populate.Plan{Declared: populate.Declared{Namespace: &corev1.Namespace{}}}
	write := func(read *v1alpha1.TemplateExemption, reason string) *v1alpha1.TemplateExemption {
		found := exemptions{all: []*v1alpha1.TemplateExemption{read}, now: metav1.Now()}
		require.NoError(t, r.reportExemptions(t.Context(), found, plan, reason))
		stored := &v1alpha1.TemplateExemption{}
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(exemption), stored))
		return stored
	}
	first := write(exemption, "one")
	second := write(first, "two")
	r.exemptionHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: first, ObjectNew: second}, nil)
	require.Equal(t, first.Status.Conditions[0].Message, write(first, "one").Status.Conditions[0].Message)
}
