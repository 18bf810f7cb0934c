package cluster_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Whether a lease has ended is decided by the clock of the API server, since that of the user may be wrong.
func TestLeaderByTheClockOfTheServer(t *testing.T) {
	renewed := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	for clock, want := range map[time.Time]bool{renewed.Add(time.Second): true, renewed.Add(time.Hour): false} {
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Date", clock.Format(http.TimeFormat))
			body := `{"major": "1", "minor": "37", "gitVersion": "v1.37.2"}`
			if r.URL.Path != "/version" {
				body = fmt.Sprintf(`{"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "spec": {
					"holderIdentity": "one_1", "leaseDurationSeconds": 10, "renewTime": %q}}`,
					renewed.Format("2006-01-02T15:04:05.000000Z"))
			}
			_, _ = w.Write([]byte(body))
		})
		leader, err := c.Leader(t.Context(), v1alpha1.OperatorLease)
		require.NoError(t, err)
		require.Equal(t, want, leader.Running)
	}
}
