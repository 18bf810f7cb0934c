package constraint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/scc"
)

func TestReasonsInADenial(t *testing.T) {
	t.Parallel()
	const denial = `admission webhook "scc.policy.nstpl.dev" denied the request: pod a/b: no SecurityContextConstraints ` +
		`admit it:
- constraint anyuid: not allowed for user "jane" or its service account
- constraint restricted: spec.containers[0].securityContext.privileged: privileged containers are not allowed ` +
		`(nstpl:constraint-denied)`
	require.Equal(t, []scc.Reason{
		{Constraint: "anyuid", Message: `not allowed for user "jane" or its service account`},
		{
			Constraint: "restricted", Field: "spec.containers[0].securityContext.privileged",
			Message: "privileged containers are not allowed",
		},
	}, reasonsIn(denial))
	const other = `pods "a" is forbidden: exceeded quota: budget`
	require.Equal(t, []scc.Reason{{Message: other}}, reasonsIn(other))
}
