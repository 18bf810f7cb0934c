package policyspace

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/events"

	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

func TestDecisionOf(t *testing.T) {
	t.Parallel()
	change := podsChange("a", "3", "4", "5")
	require.Equal(t, decision{since: "5"}, decisionOf(change, nil))
	require.Equal(t, decision{since: "5", used: "pods=4", denied: true}, decisionOf(change, &quota.ExceededError{}))
	require.Equal(t, decision{since: "5", used: "pods=4", denied: true, contended: true},
		decisionOf(change, outdated("a")))
}

// A denial is recorded once, and other ResourceQuotas are counted again only if they may have been charged.
func TestDenials(t *testing.T) {
	t.Parallel()
	exceeded := &quota.ExceededError{
		Space: "s", Requested: resourceList("pods", "4"), Limit: resourceList("pods", "3"),
	}
	other := errors.New("timeout")
	for name, test := range map[string]struct {
		err                  error
		mayBeCharged, dryRun bool
		isDenied             bool
		events, recounts     int
	}{
		"allowed": {mayBeCharged: true},
		"exceeded": {
			err: exceeded, mayBeCharged: true, isDenied: true, events: 1, recounts: 1,
		},
		"exceeded before anything is charged": {err: exceeded, isDenied: true, events: 1},
		"exceeded in a dry run":               {err: exceeded, mayBeCharged: true, dryRun: true, isDenied: true},
		"uncounted": {
			err: &quota.UncountedError{}, mayBeCharged: true, isDenied: true, recounts: 1,
		},
		"uncounted before anything is charged": {err: &quota.UncountedError{}, isDenied: true},
		"deferred":                             {err: outdated("a"), mayBeCharged: true, recounts: 1},
		"another error":                        {err: other, mayBeCharged: true, recounts: 1},
		"another error in a dry run":           {err: other, mayBeCharged: true, dryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				recorder := events.NewFakeRecorder(10)
				denials := NewDenials(nil, recorder, prometheus.NewRegistry())
				defer denials.recounts.ShutDown()
				request := &webhook.Request{}
				request.Namespace, request.DryRun = "a", &test.dryRun
				err := (&QuotaAdmission{denials: denials}).deny(request, test.err, test.mayBeCharged)
				if denied, isDenied := errors.AsType[*webhook.Denied](err); test.isDenied {
					require.True(t, isDenied)
					require.Equal(t, test.err.Error(), codes.Trim(denied.Error()))
				} else {
					require.Equal(t, test.err, err)
				}
				require.Len(t, recorder.Events, test.events)
				time.Sleep(denialRecountDelay)
				synctest.Wait()
				require.Equal(t, test.recounts, denials.recounts.Len())
			})
		})
	}
}
