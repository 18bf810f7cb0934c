package integration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// A new leader keeps the webhooks that the previous leader wrote for the first constraint, or the first rule of a
// namespace, which its own watches have not reported yet.
func TestALeaderWithLateWatchesKeepsWebhooks(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	for name, test := range map[string]struct {
		watched, configuration string
		create                 func(*testScope)
	}{
		"constraints": {"/securitycontextconstraints", v1alpha1.ConstraintWebhookName, func(s *testScope) {
			require.NoError(s.t, s.client.Create(s.t.Context(), &v1alpha1.SecurityContextConstraints{
				ObjectMeta:     metav1.ObjectMeta{Name: "any"},
				RunAsUser:      v1alpha1.RunAsUserStrategyOptions{Type: v1alpha1.RunAsAny},
				SELinuxContext: v1alpha1.SELinuxContextStrategyOptions{Type: v1alpha1.RunAsAny},
			}))
		}},
		"attributes of a namespace": {"/protectedattributes", v1alpha1.AttributeWebhookName, func(s *testScope) {
			ns := s.createNamespace("a").Name
			s.protectAttribute(ns, "env", s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.RoleKind,
				s.createAttributeRole(ns, "setter"), "prod"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, replicas := newLateReplica(t)
			late := s.replicas[len(s.replicas)-1]
			position := s.auditPosition()
			replicas.watches.holdWatches(t, test.watched)
			test.create(s)
			s.eventually(func(c *assert.CollectT) {
				stored := &admissionregistrationv1.ValidatingWebhookConfiguration{}
				assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: test.configuration}, stored))
				assert.NotEmpty(c, stored.Webhooks)
			})

			leader := leaseHolder(s)
			replicas.useLate()
			require.NoError(t, s.operator.Stop())
			s.operator = late
			waitOtherLeaseHolder(s, leader)
			written := func() []request {
				return s.writesSince(position, func(r request) bool {
					return replicas.watches.sentBy(r) && strings.HasSuffix(r.ObjectRef.Resource, "webhookconfigurations")
				})
			}
			s.eventually(func(c *assert.CollectT) {
				waits := strings.Contains(late.Log("waiting until the cache has the objects"), "missing")
				assert.True(c, waits || len(written()) > 0)
			})
			require.Empty(t, written())
			replicas.watches.releaseWatches()
			s.eventually(func(c *assert.CollectT) {
				const controller = `controller="webhookconfiguration"`
				looks, _, err := late.Metric(t.Context(), "controller_runtime_reconcile_total", controller)
				assert.NoError(c, err)
				assert.Positive(c, looks)
			})
			require.Empty(t, written())
		})
	}
}
