package integration_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/measure"
)

// countWebhookCalls returns the API server's own counts of its calls of a webhook, and of the requests that the
// webhook's matchConditions excluded.
func (cluster *testCluster) countWebhookCalls(ctx context.Context, webhook string) (calls, excluded int, err error) {
	clients, err := kubernetes.NewForConfig(cluster.controlPlane.RESTConfig())
	if err != nil {
		return 0, 0, err
	}
	all, err := measure.OfAPIServer(ctx, clients)
	if err != nil {
		return 0, 0, err
	}
	name := fmt.Sprintf("name=%q", webhook)
	return int(all.Sum("apiserver_admission_webhook_admission_duration_seconds_count", name)),
		int(all.Sum("apiserver_admission_match_condition_exclusions_total", name)), nil
}

const attributesWebhook = "attributes.policy.nstpl.dev"

// The API server calls the webhook only for requests that change a protected attribute. Without rules, the webhook does
// not exist.
func TestAttributeWebhookIsCalledOnlyForProtectedAttributes(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	require.Empty(t, s.attributeWebhooks())
	protected := newConfigMap(ns, "protected")
	protected.Labels = map[string]string{s.name("env"): "x"}
	require.NoError(t, s.client.Create(t.Context(), protected))
	rule := s.protectAttribute("", "env",
		s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "any"))
	require.Equal(t, []string{attributesWebhook}, s.attributeWebhooks())

	countCalls := func(t *testing.T) (calls, excluded int) {
		t.Helper()
		calls, excluded, err := cluster.countWebhookCalls(t.Context(), attributesWebhook)
		require.NoError(t, err)
		return calls, excluded
	}
	refused := newConfigMap(ns, "refused")
	refused.Labels = map[string]string{s.name("env"): "x"}

	t.Run("other writes do not call the webhook", func(t *testing.T) {
		s := s.withT(t)
		callsBefore, excludedBefore := countCalls(t)
		// The writes of Kubernetes' controllers meanwhile count as well: ReplicaSets, pods, tokens, leases.
		for i := range 20 {
			object := newConfigMap(ns, fmt.Sprint("other-", i))
			object.Labels, object.Annotations = map[string]string{"app": "x"},
				map[string]string{s.name("env"): "the rule is about labels"}
			require.NoError(t, s.client.Create(t.Context(), object))
			object.Labels["app"] = "y"
			require.NoError(t, s.client.Update(t.Context(), object))
			require.NoError(t, s.client.Delete(t.Context(), object))
		}
		web := newDeployment(ns, "web", 2, nil)
		require.NoError(t, s.client.Create(t.Context(), web))
		s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "web"), 2) })
		require.NoError(t,
			s.client.Delete(t.Context(), web, client.PropagationPolicy(metav1.DeletePropagationForeground)))
		protected.Data = map[string]string{"left": "alone"}
		protected.Annotations = map[string]string{"other": "annotation"}
		require.NoError(t, s.client.Update(t.Context(), protected))
		require.NoError(t, s.client.Delete(t.Context(), protected))
		calls, excluded := countCalls(t)
		require.Equal(t, callsBefore, calls)
		require.Greater(t, excluded, excludedBefore+40)
	})

	t.Run("a write of a protected attribute calls the webhook once", func(t *testing.T) {
		s := s.withT(t)
		callsBefore, _ := countCalls(t)
		require.True(t, apierrors.IsForbidden(s.client.Create(t.Context(), refused)))
		calls, _ := countCalls(t)
		require.Equal(t, callsBefore+1, calls)
	})

	t.Run("the webhook is removed with the last rule", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, s.client.Delete(t.Context(), rule))
		s.eventually(func(c *assert.CollectT) {
			assert.Empty(c, s.attributeWebhooks())
			assert.NoError(c, s.client.Create(t.Context(), refused, client.DryRunAll))
		})
	})

	t.Run("a restart of the operator writes nothing", func(t *testing.T) {
		s := s.withT(t)
		rule := s.protectAttribute("", "env-again",
			s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "any"))
		s.expectRestartWritesNothing("protectedattribute")
		require.True(t, apierrors.IsForbidden(s.client.Create(t.Context(), refused)))
		s.waitEnforced(rule)
	})
}

// While a rule is enforced, no write circumvents it, whichever other rules are created and deleted meanwhile.
func TestAttributesAreEnforcedForConcurrentWrites(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	const writers, rounds = 6, 6
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	jane := s.newAllVerbsClient(s.name("jane"))
	// the time from and until which the rule is known to be enforced, in nanoseconds; 0 is unknown
	var from, until atomic.Int64
	var passed, refusals atomic.Int64
	var group sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	errs := make(chan error, writers)
	for writer := range writers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				object := newConfigMap(ns, fmt.Sprintf("w-%d-%d", writer, i))
				object.Labels = map[string]string{s.name("env"): "prod"}
				began := time.Now().UnixNano()
				err := jane.Create(ctx, object)
				since, ended := from.Load(), until.Load()
				switch {
				case ctx.Err() != nil:
				case apierrors.IsForbidden(err):
					refusals.Add(1)
				case err != nil:
					errs <- err
					return
				case since != 0 && began > since && ended == 0:
					errs <- fmt.Errorf("%s was allowed while the rule was enforced", object.Name)
					return
				default:
					passed.Add(1)
				}
			}
		})
	}
	for round := range rounds {
		rule := s.protectAttribute("", fmt.Sprint("env-", round),
			s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "any"))
		until.Store(0)
		from.Store(time.Now().UnixNano())
		// Other rules are created and deleted, so that the webhook configuration is written each time.
		more := s.protectAttribute(ns, fmt.Sprint("more-", round),
			s.attributeRule(v1alpha1.AnnotationAttribute, "more", v1alpha1.RoleKind, "any"))
		another := s.protectAttribute("", fmt.Sprint("another-", round),
			s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "any"))
		require.NoError(t, s.client.Delete(t.Context(), more))
		require.NoError(t, s.client.Delete(t.Context(), rule))
		s.eventually(func(c *assert.CollectT) { assert.Greater(c, refusals.Load(), int64(writers)) })
		until.Store(time.Now().UnixNano())
		from.Store(0)
		require.NoError(t, s.client.Delete(t.Context(), another))
		s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.attributeWebhooks()) })
		before := passed.Load()
		s.eventually(func(c *assert.CollectT) { assert.Greater(c, passed.Load(), before+writers) })
		refusals.Store(0)
	}
	stop()
	group.Wait()
	select {
	case err := <-errs:
		require.NoError(t, err)
	default:
	}
}

// Without the operator, writes that change a protected attribute are denied, and all others are allowed.
func TestAttributesFailClosedWithoutOperator(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	s.bindRole("", v1alpha1.ClusterRoleKind, s.createAttributeRole("", "deployer"),
		groupSubject("system:masters"))
	rule := s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, s.name("deployer"))
	rule.GuardDeletion = true
	s.protectAttribute("", "env", rule)
	prod := map[string]string{s.name("env"): "prod"}
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Create(t.Context(), newDeployment(ns, "web", 1, prod)))
	})
	s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "web"), 1) })
	require.NoError(t, cluster.operator.Kill())
	require.ErrorContains(t, s.client.Create(t.Context(), newDeployment(ns, "other", 1, prod)), attributesWebhook)
	require.NoError(t, s.client.Create(t.Context(), newDeployment(ns, "plain", 1, nil)))
	s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "plain"), 1) })
	scale := mergePatch(`{"spec": {"replicas": 2}}`)
	require.NoError(t, s.client.Patch(t.Context(), newDeployment(ns, "web", 1, prod), scale))
	s.eventually(func(c *assert.CollectT) { assert.Len(c, s.listPods(ns, "web"), 2) })
	require.NoError(t, cluster.startOperator(t.Context()))
	require.NoError(t, s.client.Create(t.Context(), newDeployment(ns, "other", 1, prod)))

	// Without the webhook configuration, nothing is enforced, and the rule's condition reports that.
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AttributeWebhookName},
	}
	require.NoError(t, s.client.Delete(t.Context(), configuration))
	guarded := &v1alpha1.ClusterProtectedAttribute{ObjectMeta: metav1.ObjectMeta{Name: s.name("env")}}
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(guarded), guarded))
		enforced := apimeta.FindStatusCondition(guarded.Status.Conditions, v1alpha1.AttributeEnforced)
		if assert.NotNil(c, enforced) {
			assert.Equal(c, metav1.ConditionFalse, enforced.Status)
			assert.Contains(c, enforced.Message, "does not exist")
		}
	})
	configuration.ResourceVersion = ""
	require.NoError(t, s.client.Create(t.Context(), configuration))
	s.waitEnforced(guarded)
}
