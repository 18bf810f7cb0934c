package population

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A user who shortens a pause does not wait for the pauses of earlier waves again.
func TestOnlyOtherWavesBeginARolloutAgain(t *testing.T) {
	t.Parallel()
	const under, complete = v1alpha1.RolloutWaiting, v1alpha1.RolloutComplete
	waveOf := func(tier string, pause int32) v1alpha1.Wave {
		return v1alpha1.Wave{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}, PauseSeconds: pause,
		}
	}
	before := []v1alpha1.Wave{waveOf("canary", 3600), waveOf("gold", 3600)}
	for name, test := range map[string]struct {
		state v1alpha1.RolloutState
		waves []v1alpha1.Wave
		// wave is the one under way, and want are the waves of the revision after the change.
		wave int32
		want []v1alpha1.Wave
	}{
		"other pauses": {
			under, []v1alpha1.Wave{waveOf("canary", 0), waveOf("gold", 60)}, 1,
			[]v1alpha1.Wave{waveOf("canary", 0), waveOf("gold", 60)},
		},
		"another selector": {
			under, []v1alpha1.Wave{waveOf("canary", 3600), waveOf("iron", 3600)}, 0,
			[]v1alpha1.Wave{waveOf("canary", 3600), waveOf("iron", 3600)},
		},
		"a wave less":                {under, before[:1], 0, before[:1]},
		"no waves":                   {under, nil, 0, nil},
		"a rollout that is complete": {complete, []v1alpha1.Wave{waveOf("gold", 0)}, 1, before},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := metav1.NewTime(time.Unix(1000, 0))
			stored := []v1alpha1.TemplateRevision{
				{Name: "t-1", Revision: 1, Generation: 1, State: test.state, Wave: 1, WaveTime: &began, Waves: before},
			}
			template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 2}}
			template.Spec.Rollout = &v1alpha1.Rollout{Waves: test.waves}
			status := &v1alpha1.NamespaceTemplateStatus{
				Conditions: []metav1.Condition{{Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionTrue}},
				Revisions:  stored,
			}
			specs := map[string]*v1alpha1.NamespaceTemplateSpec{"t-1": {Rollout: &v1alpha1.Rollout{Waves: before}}}
			_, err := (&History{}).revise(t.Context(), template, status, specs)
			require.NoError(t, err)
			newest := status.Revisions[0]
			require.Equal(t, test.wave, newest.Wave)
			require.Equal(t, test.want, newest.Waves)
			if test.wave > 0 {
				require.Equal(t, &began, newest.WaveTime)
			}
			require.Equal(t, before, stored[0].Waves, "the status before is not changed")
		})
	}
}
