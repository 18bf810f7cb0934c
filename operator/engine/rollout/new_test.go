package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The creator of a namespace chooses a name and labels with which it fails. That stops a rollout only while no other
// namespace shows whether the revision can be populated.
func TestNewNamespacesThatFail(t *testing.T) {
	t.Parallel()
	failing := Member{Reached: true, Failed: true, IsNew: true}
	unreached, populated := Member{Position: 1, Pending: true}, Member{Reached: true}
	broken := Member{Reached: true, Failed: true}
	paused := &v1alpha1.Rollout{Paused: true}
	for name, c := range map[string]struct {
		settings *v1alpha1.Rollout
		members  []Member
		want     v1alpha1.RolloutState
	}{
		"alone":                                {nil, []Member{failing}, v1alpha1.RolloutStopped},
		"beside one that is to be reached":     {nil, []Member{failing, unreached}, v1alpha1.RolloutProgressing},
		"while none is reached":                {paused, []Member{failing, unreached}, v1alpha1.RolloutStopped},
		"beside one that is populated":         {nil, []Member{failing, populated, unreached}, v1alpha1.RolloutProgressing},
		"beside one that is populated, paused": {paused, []Member{failing, populated, unreached}, v1alpha1.RolloutPaused},
		"beside an older one that fails, too":  {nil, []Member{failing, broken, unreached}, v1alpha1.RolloutStopped},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			revision := v1alpha1.TemplateRevision{State: v1alpha1.RolloutProgressing, StartTime: metav1.NewTime(start)}
			next, _ := Advance(revision, c.settings, c.members, start.Add(time.Minute))
			require.Equal(t, c.want, next.State)
		})
	}
}
