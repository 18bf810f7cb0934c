package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSumOfMetrics(t *testing.T) {
	all, err := parse(strings.NewReader(`
# TYPE done_total counter
done_total{controller="namespace",result="success"} 3
done_total{controller="namespace",result="error"} 2
done_total{controller="other",result="success"} 10
# TYPE depth gauge
depth 7
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.5
`))
	require.NoError(t, err)
	require.Equal(t, 5.0, all.sum("done_total", "namespace"))
	require.Equal(t, 15.0, all.sum("done_total", ""))
	require.Equal(t, 7.0, all.sum("depth", ""))
	require.Zero(t, all.sum("absent", ""))
	require.Equal(t, 1500*time.Millisecond, all.cpu())
}

func TestRequestsToPopulate(t *testing.T) {
	before := work{requests{"APPLY roles": 5, "GET namespaces": 1, "GET roles": 1}, time.Second}
	after := work{requests{
		"APPLY roles":                     7, // two
		"GET namespaces":                  2, // one
		"GET roles":                       1, // none
		"PATCH namespaces/status":         1,
		"PATCH namespacetemplates/status": 3,
		"POST events":                     1,
		"POST namespaces":                 9, // by those who create them
		"PUT resourcequotas/status":       9, // by the quota controller
		"POST serviceaccounts":            9,
		"PUT leases":                      9,
		"WATCH roles":                     9,
	}, 3 * time.Second}
	done := after.minus(before)
	require.Equal(t, 2*time.Second, done.cpu)
	made := done.requests.ofBothSides()
	require.Equal(t, requests{
		"APPLY roles": 2, "GET namespaces": 1, "PATCH namespaces/status": 1, "PATCH namespacetemplates/status": 3,
		"POST events": 1,
	}, made)
	require.Equal(t, 7.0, made.writes())
	require.Equal(t, 1.0, made.reads())
	require.Equal(t, 14.0, done.plus(done).requests.ofBothSides().writes())
	require.Zero(t, requests{"PUT leases": 1}.writes(), "an idle operator renews its lease")
}
