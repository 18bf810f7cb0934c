package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/measure"
)

func TestRequestsToPopulate(t *testing.T) {
	before := measure.Work{
		Requests: measure.Requests{"APPLY roles": 5, "GET namespaces": 1, "GET roles": 1}, CPU: time.Second,
	}
	after := measure.Work{Requests: measure.Requests{
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
	}, CPU: 3 * time.Second}
	done := after.Minus(before)
	require.Equal(t, 2*time.Second, done.CPU)
	made := ofBothSides(done.Requests)
	require.Equal(t, measure.Requests{
		"APPLY roles": 2, "GET namespaces": 1, "PATCH namespaces/status": 1, "PATCH namespacetemplates/status": 3,
		"POST events": 1,
	}, made)
	require.Equal(t, 7.0, made.Writes())
	require.Equal(t, 1.0, made.Reads())
	require.Equal(t, 14.0, ofBothSides(done.Plus(done).Requests).Writes())
	require.Zero(t, measure.Requests{"PUT leases": 1}.Writes(), "an idle operator renews its lease")
}
