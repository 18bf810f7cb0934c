package constraint

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
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

// writtenWebhooks are the webhooks for constraints as they are stored, and why the operator could not write others.
type writtenWebhooks struct {
	storedWebhooks
	validating, mutating               *admissionregistrationv1.WebhookClientConfig
	validatingFailure, mutatingFailure error
}

func (w *writtenWebhooks) State(context.Context, string, string) (webhook.State, error) {
	if w.validating == nil {
		return webhook.Missing, w.validatingFailure
	}
	return webhook.Configured, nil
}

func (w *writtenWebhooks) Asks(
	_ context.Context, _, _ string, isAsNeeded func(*admissionregistrationv1.ValidatingWebhook) bool,
) (webhook.State, error) {
	if w.validating == nil || !isAsNeeded(&admissionregistrationv1.ValidatingWebhook{ClientConfig: *w.validating}) {
		return webhook.Missing, w.validatingFailure
	}
	return webhook.Configured, nil
}

func (w *writtenWebhooks) MutatingFailure() error { return w.mutatingFailure }

// oneConstraint is a client of an API server with one constraint and the mutating webhook for it.
type oneConstraint struct {
	client.Client
	written  *writtenStatus
	webhooks *writtenWebhooks
}

// writtenStatus is the constraint with the status that was written last.
type writtenStatus struct {
	client.SubResourceWriter
	constraint *v1alpha1.SecurityContextConstraints
	writes     int
}

func (c oneConstraint) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *v1alpha1.SecurityContextConstraints:
		c.written.constraint.DeepCopyInto(into)
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		if c.webhooks.mutating != nil {
			into.Webhooks = []admissionregistrationv1.MutatingWebhook{{
				Name: webhook.FullName(pluginName), ClientConfig: *c.webhooks.mutating,
			}}
		}
	}
	return nil
}

func (c oneConstraint) Status() client.SubResourceWriter { return c.written }

func (s *writtenStatus) Patch(
	_ context.Context, changed client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
) error {
	s.constraint, s.writes = changed.(*v1alpha1.SecurityContextConstraints), s.writes+1
	return nil
}

// A constraint waits in silence while the operator is about to write the webhooks. If it cannot write them, the
// constraint says why. The API server may refuse them for ever, so the constraint is reconciled ever less often.
func TestAConstraintReportsWhyItsWebhooksAreNotWritten(t *testing.T) {
	t.Parallel()
	constraint := generation(named("c", nil), 1)
	constraints := &constraintCache{webhook.NewRevisionCache(
		&listed{constraints: []*v1alpha1.SecurityContextConstraints{constraint}}, nil, readConstraints)}
	needed, err := (&Admission{constraints: constraints}).webhooks(nil)(t.Context())
	require.NoError(t, err)
	ofRevision := func(revision string) *admissionregistrationv1.WebhookClientConfig {
		url := "https://localhost/" + pluginName + "/" + revision
		return &admissionregistrationv1.WebhookClientConfig{URL: &url}
	}
	now, earlier, refused := ofRevision(needed[0].Revision), ofRevision("earlier"), errors.New("refused")
	for name, failing := range map[string]writtenWebhooks{
		"first mutating webhook":   {validating: now, mutatingFailure: refused},
		"first validating webhook": {mutating: now, validatingFailure: refused},
		"mutating webhook":         {validating: now, mutating: earlier, mutatingFailure: refused},
		"validating webhook":       {validating: earlier, mutating: now, validatingFailure: refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			webhooks, written := failing, &writtenStatus{constraint: constraint}
			webhooks.mutatingFailure, webhooks.validatingFailure = nil, nil
			statuses := &Statuses{
				Leader: &leadership.Leader{Client: oneConstraint{written: written, webhooks: &webhooks}},
				Stored: &webhooks, Blocks: &Blocks{}, Constraints: constraints, polls: newPolls(),
			}
			delay := func() time.Duration {
				result, err := statuses.Reconcile(t.Context(), reconcile.Request{})
				require.NoError(t, err)
				return result.RequeueAfter
			}
			require.Equal(t, firstPoll, delay())
			require.Zero(t, written.writes)
			webhooks = failing
			require.Equal(t, []time.Duration{2 * firstPoll, 4 * firstPoll}, []time.Duration{delay(), delay()})
			require.Equal(t, 1, written.writes)
			ready := apimeta.FindStatusCondition(written.constraint.Status.Conditions, v1alpha1.ConditionReady)
			require.Equal(t, []any{metav1.ConditionFalse, "NotReached"}, []any{ready.Status, ready.Reason})
			require.Equal(t, "the API server perhaps does not send pods by this generation to the operator: "+
				"refused", ready.Message)
			webhooks = writtenWebhooks{validating: now, mutating: now}
			require.Zero(t, delay())
			conditions := written.constraint.Status.Conditions
			require.True(t, apimeta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady))
		})
	}
}
