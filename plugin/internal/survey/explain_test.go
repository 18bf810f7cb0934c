package survey

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// The rollout is the reason only for namespaces that the template selects.
func TestANamespaceThatTheFirstRolloutHasNotReached(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
		Name: "t", Generation: 1, CreationTimestamp: metav1.NewTime(time.Unix(9, 0)),
	}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": "y"}}
	index := match.NewIndex()
	index.SetLayers(template, rollout.New(template, []v1alpha1.TemplateRevision{{
		Name: "t-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutPaused, StartTime: metav1.NewTime(time.Unix(9, 0)),
	}}, map[string]*v1alpha1.NamespaceTemplateSpec{"t-1": &template.Spec}))
	for name, test := range map[string]struct {
		labels  map[string]string
		reason  string
		awaited []string
	}{
		"selected": {map[string]string{"x": "y"}, "revision 1 has not reached the namespace yet", []string{"t"}},
		"not selected": {
			map[string]string{"x": "z"}, match.Explain(template, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"x": "z"},
			}}).Reason, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "team-a", UID: "u", Labels: test.labels, CreationTimestamp: metav1.NewTime(time.Unix(5, 0)),
			}}
			verdict := Explain(index, template, ns)
			require.False(t, verdict.Matches)
			require.Equal(t, test.reason, verdict.Reason)
			require.Equal(t, test.awaited, Awaited(index, ns))
		})
	}
}

// A change that the operator has not accepted counts for nothing, also if it is paused or the operator is down.
func TestATemplateWhoseChangeIsNotAccepted(t *testing.T) {
	t.Parallel()
	selecting := func(value string) v1alpha1.NamespaceTemplateSpec {
		spec := v1alpha1.NamespaceTemplateSpec{}
		spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": value}}
		return spec
	}
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 2}, Spec: selecting("after"),
	}
	template.Status = v1alpha1.NamespaceTemplateStatus{
		ObservedGeneration: 1,
		Conditions:         []metav1.Condition{{Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionTrue}},
		Revisions: []v1alpha1.TemplateRevision{
			{Name: "t-7", Revision: 7, Generation: 1, State: v1alpha1.RolloutComplete},
		},
	}
	before := selecting("before")
	index := match.NewIndex()
	index.SetLayers(template, rollout.New(template, template.Status.Revisions,
		map[string]*v1alpha1.NamespaceTemplateSpec{"t-7": &before}))
	ns := func(value string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "team-a", UID: "u", Labels: map[string]string{"x": value},
		}}
	}
	for value, names := range map[string][]string{"before": {"t"}, "after": {"t"}, "other": nil} {
		require.Equal(t, names, NotAccepted(index, []*corev1.Namespace{ns(value)}), value)
	}
	verdict := Explain(index, template, ns("before"))
	require.True(t, verdict.Matches)
	require.Equal(t, "labels match x=before (revision 7: the operator has not accepted the change since)", verdict.Reason)
	require.False(t, Explain(index, template, ns("after")).Matches)

	template.Status.ObservedGeneration = 2 // only a field of the rollout has changed
	require.Empty(t, NotAccepted(index, []*corev1.Namespace{ns("before")}))
}

// unprotected is the message about a template that renders from a label that no rule protects.
const unprotected = "$(LABEL:team) cannot be used, since no ClusterProtectedAttribute protects the label team"

// rendering returns a spec that selects every namespace and has an object with a value.
func rendering(value string) v1alpha1.NamespaceTemplateSpec {
	spec := v1alpha1.NamespaceTemplateSpec{}
	spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	spec.Templates = []runtime.RawExtension{{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
		"name": "c"}, "data": {"v": "` + value + `"}}`)}}
	return spec
}

// The operator continues with an earlier revision that does not use the value that lost its rule.
func TestAnEarlierRevisionWithoutTheUnprotectedValueIsNotIdle(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
		Name: "t", Generation: 2, CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
	}}
	template.Spec = rendering("$(LABEL:team)")
	template.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionFalse, Reason: v1alpha1.TemplateValueNotProtected,
		ObservedGeneration: 2, Message: unprotected,
	}}
	template.Status.Revisions = []v1alpha1.TemplateRevision{
		{
			Name: "t-2", Revision: 2, Generation: 2, State: v1alpha1.RolloutPaused,
			StartTime: metav1.NewTime(time.Unix(9, 0)),
		},
		{Name: "t-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutComplete},
	}
	before := rendering("fixed")
	index := match.NewIndex()
	index.SetLayers(template, rollout.New(template, template.Status.Revisions,
		map[string]*v1alpha1.NamespaceTemplateSpec{"t-2": &template.Spec, "t-1": &before}))
	created := func(second int64) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "u", CreationTimestamp: metav1.NewTime(time.Unix(second, 0)),
		}}
	}
	require.Empty(t, Idle(index, []*corev1.Namespace{created(5)}))
	require.Len(t, Idle(index, []*corev1.Namespace{created(5), created(10)}), 1, "a namespace has the newest revision")
}

// The operator does nothing with a template that it has never accepted, or whose values users may set.
func TestIdleTemplates(t *testing.T) {
	t.Parallel()
	revision := []v1alpha1.TemplateRevision{{Revision: 1, Generation: 2, State: v1alpha1.RolloutComplete}}
	namespaces := []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	for name, test := range map[string]struct {
		status    metav1.ConditionStatus
		reason    string
		observed  int64
		revisions []v1alpha1.TemplateRevision
		want      bool
	}{
		"accepted":                     {metav1.ConditionTrue, "Accepted", 2, revision, false},
		"never accepted":               {metav1.ConditionFalse, "Invalid", 2, nil, true},
		"not observed":                 {metav1.ConditionFalse, "Invalid", 1, nil, false},
		"an earlier revision stays":    {metav1.ConditionFalse, "Invalid", 2, revision, false},
		"a value is not protected":     {metav1.ConditionFalse, v1alpha1.TemplateValueNotProtected, 2, revision, true},
		"accepted, but not rolled out": {metav1.ConditionTrue, "Accepted", 2, nil, false},
	} {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 2}}
		template.Spec = rendering("$(LABEL:team)")
		template.Status.Revisions = test.revisions
		template.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.TemplateAccepted, Status: test.status, Reason: test.reason, ObservedGeneration: test.observed,
			Message: unprotected,
		}}
		notes := Idle(match.NewIndex(template), namespaces)
		require.Equal(t, test.want, len(notes) == 1, name)
		require.Empty(t, Idle(match.NewIndex(template), nil), name)
	}
}
