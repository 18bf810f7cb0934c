package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]request{
		"/api/v1/namespaces":                                     {resource: "namespaces"},
		"/api/v1/namespaces/a":                                   {resource: "namespaces"},
		"/api/v1/namespaces/a/status":                            {resource: "namespaces"},
		"/api/v1/namespaces/a/configmaps/b?dryRun=All":           {resource: "configmaps", dryRun: true},
		"/api/v1/configmaps?watch=true":                          {resource: "configmaps", watch: true},
		"/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles":  {resource: "roles"},
		"/apis/policy.nstpl.dev/v1alpha1/policyspaces/b/status":  {resource: "policyspaces"},
		"/apis/policy.nstpl.dev/v1alpha1":                        {},
		"/readyz":                                                {},
		"/api/v1/namespaces/a/serviceaccounts/b/token?watch=yes": {resource: "serviceaccounts"},
	} {
		want.method = http.MethodGet
		require.Equal(t, want, parse(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)), path)
	}
}

var (
	aPatch    = request{method: http.MethodPatch, resource: "configmaps"}
	aBinding  = request{method: http.MethodPatch, resource: "rolebindings"}
	aDeletion = request{method: http.MethodDelete, resource: "rolebindings"}
	aWatch    = request{method: http.MethodGet, resource: "configmaps", watch: true}
	aList     = request{method: http.MethodGet, resource: "configmaps"}
	aLease    = request{method: http.MethodPut, resource: "leases"}
	aTrial    = request{method: http.MethodPatch, resource: "configmaps", dryRun: true}
	anEvent   = request{method: http.MethodPost, resource: "events"}
)

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault    fault
		requests []request
		want     []decision
	}{
		"nothing": {fault{}, []request{aPatch, aDeletion, aWatch, aList, aLease}, make([]decision, 5)},
		"kill before the second write": {
			fault{do: kill, at: 2}, []request{aPatch, aList, anEvent, aTrial, aLease, aDeletion, aPatch},
			[]decision{5: {do: kill}, 6: {}},
		},
		"kill after the first": {
			fault{do: kill, at: 1, after: true}, []request{aWatch, aPatch, aPatch},
			[]decision{1: {do: kill, after: true}, 2: {}},
		},
		"answers": {
			fault{answer: 500, chance: 1, after: true}, []request{aPatch, aList, aLease, aDeletion},
			[]decision{{answer: 500, after: true}, {}, {}, {answer: 500, after: true}},
		},
		"answers by chance never": {fault{answer: 500}, []request{aPatch}, make([]decision, 1)},
		"answers to some": {
			fault{answer: 503, chance: 1, writesOf: "rolebindings", methods: "PATCH"},
			[]request{aPatch, aBinding, aDeletion}, []decision{1: {answer: 503}, 2: {}},
		},
		"a resource refused": {
			fault{refused: "rolebindings"}, []request{aPatch, aBinding, aDeletion},
			[]decision{1: {answer: 503}, 2: {answer: 503}},
		},
		"a resource hung": {
			fault{hung: "configmaps"}, []request{aPatch, aList, aWatch}, []decision{1: {hang: true}, 2: {hang: true}},
		},
		"late writes": {
			fault{late: time.Second}, []request{aPatch, aList, aWatch}, []decision{{late: time.Second}, {}, {}},
		},
		"answers to deletions late": {
			fault{lateDeletions: time.Second}, []request{aPatch, aDeletion}, []decision{1: {lateAnswer: time.Second}},
		},
		"watches cut": {
			fault{cutWatches: time.Second}, []request{aList, aWatch}, []decision{1: {ends: time.Second}},
		},
		"watches gone": {
			fault{goneWatches: 1}, []request{aWatch}, []decision{{answer: http.StatusGone}},
		},
		"late, and the sender is ended": {
			fault{late: time.Second, do: kill, at: 2}, []request{aPatch, aPatch, aPatch},
			[]decision{{late: time.Second}, {do: kill}, {late: time.Second}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inj := newInjector()
			inj.arm(test.fault, 1)
			injected := 0
			for i, r := range test.requests {
				got := inj.decide(r)
				require.Equal(t, test.want[i], got, "%d: %+v", i, r)
				if got != (decision{}) {
					injected++
				}
			}
			_, counted := inj.counted()
			require.Equal(t, injected, counted)
		})
	}
}

// The same seed has the same faults, and a disarmed injector has none.
func TestChanceFollowsTheSeed(t *testing.T) {
	t.Parallel()
	sequence := func(seed uint64) (answers []int) {
		inj := newInjector()
		inj.arm(fault{answer: 500, chance: 0.5}, seed)
		for range 50 {
			answers = append(answers, inj.decide(aPatch).answer)
		}
		inj.disarm()
		for range 50 {
			require.Zero(t, inj.decide(aPatch))
		}
		return answers
	}
	require.Equal(t, sequence(1), sequence(1))
	require.NotEqual(t, sequence(1), sequence(2))
	require.Contains(t, sequence(1), 0)
	require.Contains(t, sequence(1), 500)
}

func TestFaultEndsWithItsAction(t *testing.T) {
	t.Parallel()
	inj := newInjector()
	inj.arm(fault{do: kill, at: 2}, 1)
	inj.decide(aPatch)
	require.Equal(t, kill, inj.pendingAction())
	inj.decide(aPatch)
	require.Equal(t, nothing, inj.pendingAction())
}
