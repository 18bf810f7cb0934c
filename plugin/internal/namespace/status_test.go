package namespace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

func TestNamespaceStatus(t *testing.T) {
	index := match.NewIndex(&v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "t"},
		Spec: v1alpha1.NamespaceTemplateSpec{Namespaces: v1alpha1.NamespaceSelector{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}},
		}},
	})
	matching := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}}
	out := *matching.DeepCopy()
	out.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"}
	condition := corev1.NamespaceCondition{
		Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse, Reason: "ObjectsFailed", Message: "m",
	}
	tests := map[string]struct {
		ns                *corev1.Namespace
		populated, reason string
		templates         []string
	}{
		"not reported": {&corev1.Namespace{ObjectMeta: matching}, "Unknown", "NotReported", []string{"t"}},
		"reported": {&corev1.Namespace{
			ObjectMeta: matching, Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{condition}},
		},
			"False", "ObjectsFailed", []string{"t"}},
		"opted out": {&corev1.Namespace{ObjectMeta: out}, "<none>", "OptedOut", []string{}},
		"excluded": {
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}, "<none>", "Excluded", []string{},
		},
		"no template": {
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, "<none>", "NoTemplate", []string{},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newNamespaceStatus(index, test.ns)
			require.Equal(t, test.populated, got.Populated)
			require.Equal(t, test.reason, got.Reason)
			require.Equal(t, test.templates, got.Templates)
		})
	}
}

func TestStatusOfANamespaceThatARolloutHasNotReached(t *testing.T) {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
		Name: "t", Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(9, 0)),
	}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	index := match.NewIndex()
	index.SetLayers(template, rollout.New(template, []v1alpha1.TemplateRevision{{
		Name: "t-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutPaused, StartTime: metav1.NewTime(time.Unix(9, 0)),
	}}, map[string]*v1alpha1.NamespaceTemplateSpec{"t-1": &template.Spec}))
	got := newNamespaceStatus(index, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "a", UID: "u", CreationTimestamp: metav1.NewTime(time.Unix(5, 0)),
	}})
	require.Equal(t, "NotReached", got.Reason)
	require.Equal(t, "not populated yet: waits for the rollout of t", got.Message)
}

func TestNamespaceStatusHasExpiry(t *testing.T) {
	end := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for annotation, want := range map[string]struct {
		expiry *time.Time
		cell   string
	}{
		"":                          {nil, ""},
		"never":                     {nil, "never"},
		"tomorrow":                  {nil, "<invalid>"},
		"2026-01-31T12:00:00Z":      {&end, "2026-01-31T12:00:00Z"},
		"2026-01-31T13:00:00+01:00": {&end, "2026-01-31T12:00:00Z"},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "a", Annotations: map[string]string{v1alpha1.ExpiresAnnotation: annotation},
		}}
		shown := newNamespaceStatus(nil, ns)
		require.Equal(t, want.expiry, shown.Expiry, annotation)
		require.Equal(t, want.cell, shown.expires, annotation)
	}
}
