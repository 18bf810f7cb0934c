package policyspace

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// configuredWebhooks is a webhook configuration that the API server uses, unless asks says otherwise.
type configuredWebhooks struct {
	storedWebhooks
	webhooks []admissionregistrationv1.ValidatingWebhook
	stored   webhook.State
	asks     webhook.State
	err      error
}

func (c *configuredWebhooks) State(context.Context, string, string) (webhook.State, error) {
	if c.stored == webhook.Missing {
		return c.stored, c.err
	}
	return c.stored, nil
}

func (c *configuredWebhooks) Asks(
	_ context.Context, _, plugin string, isAsNeeded func(*admissionregistrationv1.ValidatingWebhook) bool,
) (webhook.State, error) {
	for i := range c.webhooks {
		if c.webhooks[i].Name == webhook.FullName(plugin) && isAsNeeded(&c.webhooks[i]) {
			return c.asks, c.err
		}
	}
	return webhook.Missing, c.err
}

// listedSpaces is a client that lists policy spaces.
type listedSpaces struct {
	client.Client
	spaces []v1alpha1.PolicySpace
}

func (l listedSpaces) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*v1alpha1.PolicySpaceList).Items = l.spaces
	return nil
}

// writtenFor returns the webhooks that the operator writes for policy spaces with limits.
func writtenFor(t *testing.T, spaces ...v1alpha1.PolicySpace) []admissionregistrationv1.ValidatingWebhook {
	t.Helper()
	cached := listedSpaces{spaces: spaces}
	var pointers []*v1alpha1.PolicySpace
	for i := range spaces {
		pointers = append(pointers, &spaces[i])
	}
	totals := &namespaceTotals{forest: hierarchy.NewForest(pointers), hasForest: true}
	ofNamespaces := &NamespaceQuota{cached: cached, totals: totals}
	var written []admissionregistrationv1.ValidatingWebhook
	sequencer := &Sequencer{quota: &QuotaAdmission{cached: cached}}
	for _, plugin := range append(ofNamespaces.Plugins(), sequencer.Plugin()) {
		needed, err := plugin.Webhooks(t.Context())
		require.NoError(t, err)
		for _, w := range needed {
			written = append(written, admissionregistrationv1.ValidatingWebhook{
				Name: webhook.FullName(plugin.Name), Rules: w.Rules, MatchConditions: w.MatchConditions,
			})
		}
	}
	return written
}

func limiting(name string, pairs ...string) v1alpha1.PolicySpace {
	space := countedSpace(resourceList(pairs...), nil)
	space.Name, space.Status = name, v1alpha1.PolicySpaceStatus{}
	return *space
}

// A policy space is enforced once the webhooks are those that its own limits and rules need, and the API server uses
// them.
func TestEnforcementOf(t *testing.T) {
	t.Parallel()
	pods, other := limiting("s", "pods", "3", "requests.cpu", "2"), limiting("other", "pods", "3", "secrets", "3")
	namespaces, below := limiting("s", "count/namespaces", "3"), limiting("below", "count/namespaces", "3")
	rules := v1alpha1.PolicySpace{Spec: v1alpha1.PolicySpaceSpec{SelfService: &v1alpha1.SelfService{}}}
	var many []v1alpha1.PolicySpace
	for i := range maxConditioned {
		many = append(many, limiting(fmt.Sprint("m", i), "count/namespaces", "3"))
	}
	selfService := []admissionregistrationv1.ValidatingWebhook{{Name: webhook.FullName(selfServicePlugin)}}
	for name, test := range map[string]struct {
		space v1alpha1.PolicySpace
		is    configuredWebhooks
		want  webhook.State
	}{
		"nothing restricted":       {is: configuredWebhooks{stored: webhook.Deleted}, want: webhook.Configured},
		"no configuration":         {pods, configuredWebhooks{stored: webhook.Deleted}, webhook.Deleted},
		"rules, no configuration":  {rules, configuredWebhooks{stored: webhook.Deleted}, webhook.Deleted},
		"rules, not written yet":   {rules, configuredWebhooks{}, webhook.Missing},
		"rules, written":           {rules, configuredWebhooks{webhooks: selfService}, webhook.Configured},
		"secrets, not written yet": {other, configuredWebhooks{webhooks: writtenFor(t, pods)}, webhook.Missing},
		"namespaces, not written":  {namespaces, configuredWebhooks{webhooks: writtenFor(t, below)}, webhook.Missing},
		"pods, written": {
			pods, configuredWebhooks{webhooks: writtenFor(t, other, pods)}, webhook.Configured,
		},
		"rules, not used yet": {
			rules, configuredWebhooks{webhooks: selfService, asks: webhook.Missing}, webhook.Missing,
		},
		"namespaces, written": {
			namespaces, configuredWebhooks{webhooks: writtenFor(t, below, namespaces)}, webhook.Configured,
		},
		"namespaces of all policy spaces": {
			namespaces, configuredWebhooks{webhooks: writtenFor(t, append(many, namespaces)...)}, webhook.Configured,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.space.Generation = 2
			enforced := (&Spaces{Stored: &test.is}).enforcementOf(t.Context(), &test.space)
			require.Equal(t, test.want, enforced.webhooks)
			require.NoError(t, enforced.failure)
			require.Equal(t, test.want == webhook.Missing, enforced.isAwaited())
		})
	}
	failing := configuredWebhooks{webhooks: writtenFor(t, pods), asks: webhook.Missing, err: errors.New("timeout")}
	enforced := (&Spaces{Stored: &failing}).enforcementOf(t.Context(), &pods)
	require.Equal(t, enforcement{webhooks: webhook.Missing, failure: failing.err}, enforced)
	require.False(t, enforced.isAwaited())
}

// A restart sends no probes: what a policy space was Ready for is in force as long as the webhooks exist.
func TestReadyPolicySpacesAreNotProbedAgain(t *testing.T) {
	t.Parallel()
	space := limiting("s", "pods", "3")
	space.Generation, space.Status.ObservedGeneration = 2, 2
	apimeta.SetStatusCondition(&space.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PolicySpaceReady, Status: metav1.ConditionTrue,
	})
	is := &configuredWebhooks{asks: webhook.Missing}
	spaces := &Spaces{Stored: is}
	require.Equal(t, webhook.Configured, spaces.enforcementOf(t.Context(), &space).webhooks)
	is.stored = webhook.Deleted
	require.Equal(t, webhook.Deleted, spaces.enforcementOf(t.Context(), &space).webhooks)
	is.stored, space.Generation = webhook.Configured, 3
	require.Equal(t, webhook.Missing, spaces.enforcementOf(t.Context(), &space).webhooks, "Ready for other limits")
}

// statusWrites keeps the statuses that are written.
type statusWrites struct {
	client.SubResourceWriter
	written []v1alpha1.PolicySpaceStatus
}

// noUsageQuotas is a client that reads no usage quotas.
type noUsageQuotas struct {
	noObjects
	writes *statusWrites
}

func (c noUsageQuotas) Status() client.SubResourceWriter { return c.writes }

func (w *statusWrites) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	w.written = append(w.written, object.(*v1alpha1.PolicySpace).Status)
	return nil
}

// updating returns the controller of a policy space with some namespaces, and what it writes.
func updating(
	t *testing.T, space *v1alpha1.PolicySpace, is *configuredWebhooks, namespaces ...*corev1.Namespace,
) (*Spaces, *statusWrites) {
	t.Helper()
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
		policySpaceIndex: indexPolicySpaces,
	})
	for _, ns := range namespaces {
		require.NoError(t, indexer.Add(ns))
	}
	clientset := fake.NewClientset()
	create := func(action clienttesting.Action) (bool, runtime.Object, error) {
		created := action.(clienttesting.CreateAction).GetObject().(*corev1.ResourceQuota)
		if _, isInvalid := created.Spec.Hard["podz"]; isInvalid {
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ResourceQuota"}, "trial", field.ErrorList{
				field.NotSupported(field.NewPath("spec", "hard").Key("podz"), "podz", []string{"pods"}),
			})
		}
		if _, isUnknown := created.Spec.Hard["unknown"]; isUnknown {
			return true, nil, apierrors.NewTimeoutError("the API server is busy", 1)
		}
		return true, created, nil
	}
	clientset.PrependReactor("create", "resourcequotas", create)
	writes := &statusWrites{}
	spaces := &Spaces{
		Leader: &leadership.Leader{
			Client: noUsageQuotas{writes: writes}, Clients: leadership.Clients{Clientset: clientset},
		},
		Members: members{indexer}, Metrics: NewMetrics(prometheus.NewRegistry()), Stored: is, polls: newPolls(),
		totals: &namespaceTotals{census: censusOf(t, "1"), hasForest: true},
	}
	spaces.placement.forest = hierarchy.NewForest([]*v1alpha1.PolicySpace{space})
	return spaces, writes
}

// ready returns the condition Ready of the last status.
func (w *statusWrites) ready(t *testing.T) *metav1.Condition {
	t.Helper()
	require.NotEmpty(t, w.written)
	return apimeta.FindStatusCondition(w.written[len(w.written)-1].Conditions, v1alpha1.PolicySpaceReady)
}

// Tools that watch a policy space see one change of its status, also if the API server compiles the webhooks first.
// In namespaces, requests are denied until the status has the limits, so it is written at once.
func TestFirstStatusWaitsUntilTheAPIServerAsks(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][]string{"pods": {"pods", "3"}, "namespaces": {"count/namespaces", "3"}} {
		space := limiting("s", limits...)
		space.Generation = 1
		is := &configuredWebhooks{webhooks: writtenFor(t, space), asks: webhook.Missing}
		spaces, writes := updating(t, &space, is)
		result, err := spaces.updateStatus(t.Context(), &space)
		require.NoError(t, err, name)
		require.Equal(t, reconcile.Result{RequeueAfter: firstPoll}, result, name)
		require.Empty(t, writes.written, name)
		is.asks = webhook.Configured
		_, err = spaces.updateStatus(t.Context(), &space)
		require.NoError(t, err, name)
		require.Len(t, writes.written, 1, name)
		require.Equal(t, metav1.ConditionTrue, writes.ready(t).Status, name)
		require.Equal(t, resourceList(limits...), writes.written[0].Hard, name)
	}
	space := limiting("s", "pods", "3")
	space.Generation = 1
	is := &configuredWebhooks{webhooks: writtenFor(t, space), asks: webhook.Missing}
	spaces, writes := updating(t, &space, is, namespaceIn("a", "s", "s"))
	result, err := spaces.updateStatus(t.Context(), &space)
	require.NoError(t, err)
	require.Equal(t, reconcile.Result{RequeueAfter: firstPoll}, result)
	require.Equal(t, metav1.ConditionFalse, writes.ready(t).Status)
}

// polled updates the status of a policy space as often as it asks for that, and returns the delays.
func polled(t *testing.T, spaces *Spaces, space *v1alpha1.PolicySpace, times int) []time.Duration {
	t.Helper()
	var delays []time.Duration
	for range times {
		result, err := spaces.updateStatus(t.Context(), space)
		require.NoError(t, err)
		delays = append(delays, result.RequeueAfter)
	}
	return delays
}

// The webhooks may be missing for ever, such as after the API server refused those of the operator.
func TestAPolicySpaceWaitsEverLongerForWebhooks(t *testing.T) {
	t.Parallel()
	space := limiting("s", "pods", "3")
	space.Generation = 1
	is := &configuredWebhooks{}
	spaces, writes := updating(t, &space, is)
	delays := polled(t, spaces, &space, quietPolls)
	require.Empty(t, writes.written)
	delays = append(delays, polled(t, spaces, &space, 1)...)
	require.Contains(t, writes.ready(t).Message, "wait until the operator has written them")
	space.Status = writes.written[0]
	delays = append(delays, polled(t, spaces, &space, 2)...)
	require.Equal(t, []time.Duration{
		firstPoll, 2 * firstPoll, 4 * firstPoll, 8 * firstPoll, 16 * firstPoll, 32 * firstPoll, lastPoll, lastPoll,
	}, delays)
	require.Len(t, writes.written, 1)

	is.webhooks = writtenFor(t, space)
	require.Equal(t, []time.Duration{0}, polled(t, spaces, &space, 1))
	require.Equal(t, metav1.ConditionTrue, writes.ready(t).Status)
	space.Generation, is.webhooks = 2, nil
	require.Equal(t, []time.Duration{firstPoll}, polled(t, spaces, &space, 1), "it is another wait")
}

// A policy of others may deny the probe. Then the limits on objects are enforced all the same.
func TestAProbeThatFailsDoesNotFreezeTheStatus(t *testing.T) {
	t.Parallel()
	space := limiting("s", "pods", "3", "count/namespaces", "2")
	space.Generation = 1
	failure := errors.New("leases are forbidden")
	is := &configuredWebhooks{webhooks: writtenFor(t, space), asks: webhook.Missing, err: failure}
	spaces, writes := updating(t, &space, is)
	_, err := spaces.updateStatus(t.Context(), &space)
	require.NoError(t, err)
	require.Equal(t, resourceList("pods", "3"), writes.written[0].Hard)
	require.Equal(t, "limits and rules for self-service are perhaps not enforced: leases are forbidden",
		writes.ready(t).Message)
}

// On a fresh install, the operator may be unable to write any webhook.
func TestAPolicySpaceReportsWhyTheFirstWebhookIsMissing(t *testing.T) {
	t.Parallel()
	space := limiting("s", "pods", "3")
	space.Generation = 1
	is := &configuredWebhooks{stored: webhook.Missing, err: errors.New("refused")}
	spaces, writes := updating(t, &space, is)
	require.Equal(t, []time.Duration{firstPoll, 2 * firstPoll}, polled(t, spaces, &space, 2))
	require.Equal(t, "limits and rules for self-service are perhaps not enforced: refused",
		writes.ready(t).Message)
}

// Admission does not see what is written while no replica answers.
func TestInvalidLimitsAreReported(t *testing.T) {
	t.Parallel()
	space := limiting("s", "podz", "1")
	space.Generation = 1
	is := &configuredWebhooks{webhooks: writtenFor(t, space)}
	spaces, writes := updating(t, &space, is)
	_, err := spaces.updateStatus(t.Context(), &space)
	require.NoError(t, err)
	ready := writes.ready(t)
	require.Equal(t, []any{metav1.ConditionFalse, reasonInvalid}, []any{ready.Status, ready.Reason})
	require.Contains(t, ready.Message, `policyspace s has limits that no ResourceQuota can have: ResourceQuota "trial"`)
	require.Contains(t, ready.Message, ": correct spec.quota.hard")
	space.Status = writes.written[0]
	require.True(t, apimeta.IsStatusConditionTrue(space.Status.Conditions, v1alpha1.ConditionStalled))
	is.stored = webhook.Deleted
	_, err = spaces.updateStatus(t.Context(), &space)
	require.NoError(t, err)
	require.Len(t, writes.written, 1, "the reason remains until the spec changes")
	space.Generation, space.Spec.Quota.Hard, is.stored = 2, resourceList("pods", "1"), webhook.Configured
	is.webhooks = writtenFor(t, space)
	_, err = spaces.updateStatus(t.Context(), &space)
	require.NoError(t, err)
	require.Equal(t, metav1.ConditionTrue, writes.ready(t).Status)
}

// A policy space without namespaces has no status before its limits were tried, unless that takes long. In namespaces,
// requests wait for the status, so it is written at once. The limits are tried until it is known whether they are
// valid.
func TestLimitsThatCannotBeTried(t *testing.T) {
	t.Parallel()
	space := limiting("s", "unknown", "1")
	space.Generation = 2
	space.Status.ObservedGeneration = 1
	for quiet, namespaces := range map[int][]*corev1.Namespace{quietPolls: nil, 0: {namespaceIn("a", "s", "s")}} {
		space := space.DeepCopy()
		is := &configuredWebhooks{webhooks: writtenFor(t, *space)}
		spaces, writes := updating(t, space, is, namespaces...)
		require.Len(t, polled(t, spaces, space, quiet), quiet)
		require.Empty(t, writes.written)
		require.Equal(t, []time.Duration{firstPoll << quiet}, polled(t, spaces, space, 1))
		ready := writes.ready(t)
		require.Equal(t, []any{metav1.ConditionFalse, reasonUntried}, []any{ready.Status, ready.Reason})
		require.Contains(t, ready.Message, "the API server is busy")
		space.Status = writes.written[0]
		require.EqualValues(t, 1, space.Status.ObservedGeneration, "the limits are tried again")
		space.Spec.Quota.Hard = resourceList("podz", "1") // the same limits, about which the API server answers now
		spaces.failed.until = time.Time{}
		polled(t, spaces, space, 1)
		require.Equal(t, reasonInvalid, writes.ready(t).Reason)
		require.EqualValues(t, 2, writes.written[1].ObservedGeneration)
	}
}

// A webhook for ResourceQuotas that does not answer delays each trial by seconds, for which all policy spaces wait.
func TestAFailedTrialCountsForAllPolicySpaces(t *testing.T) {
	t.Parallel()
	unknown, next, free := limiting("s", "unknown", "1"), limiting("next", "pods", "3"), limiting("free")
	unknown.Generation, next.Generation, free.Generation = 1, 1, 1
	spaces, _ := updating(t, &unknown, &configuredWebhooks{})
	_, failure := spaces.invalidLimits(t.Context(), &unknown)
	require.ErrorContains(t, failure, "the API server is busy")
	require.False(t, spaces.failed.until.IsZero())
	spaces.failed.until = time.Now().Add(time.Hour)
	_, err := spaces.invalidLimits(t.Context(), &next)
	require.Equal(t, failure, err)
	invalid, err := spaces.invalidLimits(t.Context(), &free)
	require.NoError(t, err, "it has no limits")
	require.Empty(t, invalid)
	spaces.failed.until = time.Now()
	invalid, err = spaces.invalidLimits(t.Context(), &next)
	require.NoError(t, err)
	require.Empty(t, invalid)
}

// Trials take at most a tenth of the time of the controller.
func TestLimitsAreTriedAgainAfterTenTimesAsLong(t *testing.T) {
	t.Parallel()
	ended := time.Now()
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond: firstPoll, trialTimeout: 10 * trialTimeout,
	} {
		failed := newFailedTrial(errors.New("timeout"), ended.Add(-took), ended)
		require.Equal(t, want, failed.until.Sub(ended))
	}
}

// A policy space with rules for self-service only is reconciled, too, when the webhooks are removed.
func TestWebhooksConcernAllRestrictingPolicySpaces(t *testing.T) {
	t.Parallel()
	rules := v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: "rules"}}
	rules.Spec.SelfService = &v1alpha1.SelfService{}
	cached := listedSpaces{spaces: []v1alpha1.PolicySpace{
		rules, limiting("limited", "pods", "3"), {ObjectMeta: metav1.ObjectMeta{Name: "free"}},
	}}
	is := &configuredWebhooks{}
	spaces := &Spaces{Leader: &leadership.Leader{Client: cached}, Stored: is, polls: newPolls()}
	enqueue := spaces.enqueueOnWebhooks()
	names := func() (names []string) {
		for _, request := range enqueue(t.Context()) {
			names = append(names, request.Name)
		}
		return names
	}
	require.Equal(t, []string{"rules", "limited"}, names())
	require.Empty(t, names(), "the webhooks are the same")
	spaces.polls.When("limited")
	require.Equal(t, []string{"limited"}, names(), "it waits for them")
	require.Zero(t, spaces.polls.NumRequeues("limited"), "it asks often again")
	is.stored, is.err = webhook.Missing, errors.New("refused")
	require.Equal(t, []string{"rules", "limited"}, names(), "the webhooks were removed, and are not written again")
}
