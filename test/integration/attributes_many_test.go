package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// manyRules returns rules of the cluster about a label each.
func manyRules(number int, prefix string) []*v1alpha1.ClusterProtectedAttribute {
	rules := make([]*v1alpha1.ClusterProtectedAttribute, number)
	for i := range rules {
		rules[i] = &v1alpha1.ClusterProtectedAttribute{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%d", prefix, i), Labels: map[string]string{"of": prefix},
			},
			AttributeRule: v1alpha1.AttributeRule{
				AttributeKind: v1alpha1.LabelAttribute, AttributeName: fmt.Sprintf("%s.example.com/rule-%d", prefix, i),
				RoleRef: v1alpha1.RoleReference{Kind: v1alpha1.ClusterRoleKind, Name: "not-granted"},
			},
		}
	}
	return rules
}

// createAll creates rules, some at the same time.
func createAll(ctx context.Context, c client.Client, rules []*v1alpha1.ClusterProtectedAttribute) error {
	errs := make([]error, len(rules))
	workqueue.ParallelizeUntil(ctx, 4, len(rules), func(i int) { errs[i] = c.Create(ctx, rules[i]) })
	return errors.Join(errs...)
}

// countEnforced returns the number of rules whose condition is True.
func countEnforced(ctx context.Context, c client.Client, prefix string) (int, error) {
	list := &v1alpha1.ClusterProtectedAttributeList{}
	if err := c.List(ctx, list, client.MatchingLabels{"of": prefix}); err != nil {
		return 0, err
	}
	return len(slices.DeleteFunc(list.Items, func(rule v1alpha1.ClusterProtectedAttribute) bool {
		return !apimeta.IsStatusConditionTrue(rule.Status.Conditions, v1alpha1.AttributeEnforced)
	})), nil
}

// repeatedly calls a function until the returned function is called, which returns the number of calls and the first
// error.
func repeatedly(do func() error) (stop func() (int, error)) {
	ending := make(chan struct{})
	var done sync.WaitGroup
	var failure error
	calls := 0
	done.Go(func() {
		for ; failure == nil; calls++ {
			select {
			case <-ending:
				return
			default:
			}
			failure = do()
		}
	})
	return func() (int, error) {
		close(ending)
		done.Wait()
		return calls, failure
	}
}

// tryViolation tries a write that a rule forbids, and returns an error if the API server does not deny it.
func tryViolation(s *testScope, user client.Client, namespace, label string) error {
	object := newConfigMap(namespace, "violating")
	object.Labels = map[string]string{label: "x"}
	if err := user.Create(s.t.Context(), object, client.DryRunAll); !apierrors.IsForbidden(err) {
		return fmt.Errorf("label %s is not protected: %w", label, err)
	}
	return nil
}

// A rule is enforced at every moment while hundreds of others are created and deleted. Their webhooks are written a few
// times, and each of them is enforced once its condition says so. The other webhooks are not written at all.
func TestManyAttributeRulesComeAndGo(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	const number = 300
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	user := s.newAllVerbsClient(s.name("jane"))
	s.protectAttribute("", "always",
		s.attributeRule(v1alpha1.LabelAttribute, "always", v1alpha1.ClusterRoleKind, "not-granted"))
	generations := func() (own, others int64) {
		t.Helper()
		for _, name := range []string{
			v1alpha1.AttributeWebhookName, v1alpha1.ConstraintWebhookName, v1alpha1.WebhookName,
		} {
			stored := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: name}, stored))
			if name == v1alpha1.AttributeWebhookName {
				own = stored.Generation
			} else {
				others += stored.Generation
			}
		}
		return own, others
	}
	ownBefore, othersBefore := generations()
	stop := repeatedly(func() error { return tryViolation(s, user, ns, s.name("always")) })

	rules := manyRules(number, "many")
	require.NoError(t, createAll(t.Context(), s.client, rules))
	s.eventually(func(c *assert.CollectT) {
		enforced, err := countEnforced(t.Context(), s.client, "many")
		assert.NoError(c, err)
		assert.Equal(c, number, enforced)
	})
	for _, rule := range rules {
		require.NoError(t, tryViolation(s, user, ns, rule.AttributeName))
	}

	require.NoError(t, s.client.DeleteAllOf(t.Context(), &v1alpha1.ClusterProtectedAttribute{},
		client.MatchingLabels{"of": "many"}))
	s.eventually(func(c *assert.CollectT) {
		for _, rule := range []*v1alpha1.ClusterProtectedAttribute{rules[0], rules[number-1]} {
			assert.ErrorContains(c, tryViolation(s, user, ns, rule.AttributeName), "is not protected")
		}
	})
	calls, err := stop()
	require.NoError(t, err)
	require.Positive(t, calls)
	ownAfter, othersAfter := generations()
	require.Less(t, ownAfter-ownBefore, int64(number))
	require.Equal(t, othersBefore, othersAfter)
}

// A rule is enforced at every moment while the operator takes over a cluster from a version that had one configuration
// for all webhooks.
func TestAttributeWebhooksMoveToTheirConfiguration(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	ns := s.createNamespace("a").Name
	user := s.newAllVerbsClient(s.name("jane"))
	s.protectAttribute("", "env",
		s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind, "not-granted"))
	require.NoError(t, cluster.operator.Kill())
	all, own := &admissionregistrationv1.ValidatingWebhookConfiguration{},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, all))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: v1alpha1.AttributeWebhookName}, own))
	all.Webhooks, own.Webhooks = append(all.Webhooks, own.Webhooks...), nil
	require.NoError(t, s.client.Update(t.Context(), all))
	require.NoError(t, s.client.Update(t.Context(), own))
	attempt := func() error {
		object := newConfigMap(ns, "violating")
		object.Labels = map[string]string{s.name("env"): "x"}
		if err := user.Create(t.Context(), object, client.DryRunAll); err == nil {
			return fmt.Errorf("the rule is not enforced")
		}
		return nil
	}
	stop := repeatedly(attempt)
	require.NoError(t, cluster.startOperator(t.Context()))
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, []string{attributesWebhook}, s.attributeWebhooks())
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(all), all))
		for i := range all.Webhooks {
			assert.NotEqual(c, attributesWebhook, all.Webhooks[i].Name)
		}
	})
	calls, err := stop()
	require.NoError(t, err)
	require.Positive(t, calls)
}

// BenchmarkAttributeRules creates rules, waits until they are enforced, and deletes them together, while another client
// writes ConfigMaps that no rule concerns. It reports the times, and the longest time that a ConfigMap took.
func BenchmarkAttributeRules(b *testing.B) {
	for _, number := range []int{3, 100, 2000} {
		b.Run(fmt.Sprint(number), func(b *testing.B) {
			cluster, err := startTestCluster(b.Context())
			require.NoError(b, err)
			defer func() { require.NoError(b, cluster.stop()) }()
			require.NoError(b, cluster.startOperator(b.Context()))
			for b.Loop() {
				measureRules(b, cluster, number)
			}
		})
	}
}

func measureRules(b *testing.B, cluster *testCluster, number int) {
	b.Helper()
	ctx, c := b.Context(), cluster.client
	other := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}}
	require.NoError(b, c.Create(ctx, other))
	var sampled chan struct{} // closed after some hundred writes of a phase
	phase := func(name string, do func()) {
		const samples = 500
		var waits []time.Duration
		sampled = make(chan struct{})
		stop := repeatedly(func() error {
			started := time.Now()
			other.Data = map[string]string{"written": started.String()}
			err := c.Update(ctx, other)
			if waits = append(waits, time.Since(started)); len(waits) == samples {
				close(sampled)
			}
			return err
		})
		started := time.Now()
		do()
		took := time.Since(started)
		_, err := stop()
		require.NoError(b, err)
		slices.Sort(waits)
		b.ReportMetric(took.Seconds(), name+"-s")
		b.ReportMetric(float64(waits[len(waits)-1].Microseconds())/1000, name+"-longest-ms")
		b.ReportMetric(float64(waits[len(waits)/2].Microseconds())/1000, name+"-p50-ms")
	}
	await := func(condition func() bool) {
		require.NoError(b, wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true,
			func(context.Context) (bool, error) { return condition(), nil }))
	}
	phase("idle", func() { <-sampled })
	phase("create", func() {
		require.NoError(b, createAll(ctx, c, manyRules(number, "many")))
		await(func() bool {
			enforced, err := countEnforced(ctx, c, "many")
			require.NoError(b, err)
			return enforced == number
		})
	})
	phase("steady", func() { <-sampled })
	one := manyRules(1, "one")
	phase("change", func() {
		require.NoError(b, createAll(ctx, c, one))
		await(func() bool {
			enforced, err := countEnforced(ctx, c, "one")
			require.NoError(b, err)
			return enforced == 1
		})
	})
	phase("delete", func() {
		require.NoError(b, c.DeleteAllOf(ctx, &v1alpha1.ClusterProtectedAttribute{}))
		await(func() bool {
			stored := &admissionregistrationv1.ValidatingWebhookConfiguration{}
			require.NoError(b, c.Get(ctx, client.ObjectKey{Name: v1alpha1.AttributeWebhookName}, stored))
			return len(stored.Webhooks) == 0
		})
	})
	require.NoError(b, c.Delete(ctx, other))
}
