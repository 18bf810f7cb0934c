package constraint

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

func TestReadiness(t *testing.T) {
	t.Parallel()
	valid := &v1alpha1.SecurityContextConstraints{
		RunAsUser:      v1alpha1.RunAsUserStrategyOptions{Type: v1alpha1.RunAsAny},
		SELinuxContext: v1alpha1.SELinuxContextStrategyOptions{Type: v1alpha1.RunAsAny},
	}
	invalid := valid.DeepCopy()
	invalid.RunAsUser.Type = v1alpha1.MustRunAs
	takesFromNamespace := valid.DeepCopy()
	takesFromNamespace.RunAsUser.Type = v1alpha1.MustRunAsRange
	for name, test := range map[string]struct {
		constraint *v1alpha1.SecurityContextConstraints
		state      webhook.State
		exhausted  bool
		is         reporting.Kstatus
		reason     string
		message    string
	}{
		"in force": {
			valid, webhook.Configured, false, reporting.Current, "InForce", "the operator admits pods by the constraint",
		},
		"every block of user IDs is in use": {
			takesFromNamespace, webhook.Configured, true, reporting.Failed, "UserIDsExhausted",
			"pods in namespaces without user IDs are denied: every block of user IDs is in use: start the operator with a " +
				"larger --scc-uid-range",
		},
		"a constraint that needs no block": {
			valid, webhook.Configured, true, reporting.Current, "InForce", "the operator admits pods by the constraint",
		},
		"the webhooks are not configured yet": {
			valid, webhook.Missing, false, reporting.InProgress, "NotReached",
			"the API server does not send pods to the operator yet",
		},
		"a deleted webhook configuration": {
			valid, webhook.Deleted, false, reporting.Failed, "NotReached",
			"MutatingWebhookConfiguration nstpl-operator or ValidatingWebhookConfiguration nstpl-operator-constraints does " +
				"not exist. Without the first, no fields of pods are set; without the second, exec, attach and what other " +
				"webhooks set in pods are not checked: apply the manifests again",
		},
		"a constraint that cannot be evaluated": {
			invalid, webhook.Configured, false, reporting.Failed, "Invalid",
			"no pod is admitted by the constraint: runAsUser.uid is missing: MustRunAs needs it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is, reason, message := readiness(test.constraint, test.state, test.exhausted)
			require.Equal(t, test.is, is)
			require.Equal(t, test.reason, reason)
			require.Equal(t, test.message, message)
		})
	}
}
