package policyspace

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// selfServicePlugin is the name of the plugin for the rules of spec.selfService, in package selfservice.
const selfServicePlugin = "self-service"

// Reasons of the condition Ready: reasonInvalid is that of a policy space whose limits no ResourceQuota can have, and
// reasonUntried that of one of which this is unknown.
const (
	reasonInvalid = "InvalidLimits"
	reasonUntried = "UntriedLimits"
)

const (
	// firstPoll is the delay before a policy space is reconciled again because it is unknown whether what it restricts
	// is enforced. Each further delay is twice as long, up to lastPoll.
	firstPoll = 250 * time.Millisecond
	lastPoll  = 10 * time.Second
	// quietPolls is how many of these delays the first status waits for, which takes eight seconds.
	quietPolls = 5
	// trialTimeout is how long the API server may take to validate limits. All policy spaces wait meanwhile, so after a
	// trial that failed, no limits are tried for trialShare times as long as it took, and at least for firstPoll.
	trialTimeout = 5 * time.Second
	trialShare   = 10
)

// storedWebhooks is what Spaces uses of webhook.Stored.
type storedWebhooks interface {
	State(ctx context.Context, configuration, plugin string) (webhook.State, error)
	Asks(
		ctx context.Context, configuration, plugin string,
		isAsNeeded func(*admissionregistrationv1.ValidatingWebhook) bool,
	) (webhook.State, error)
	Source(configuration string, requests func(context.Context) []reconcile.Request) source.Source
}

// enforcement is whether what a policy space restricts is enforced.
type enforcement struct {
	// invalid is why the API server accepts no ResourceQuota with the limits, or empty.
	invalid string
	// untried is why it could not be found out whether the API server accepts the limits, or nil.
	untried error
	// webhooks is whether the API server asks the operator.
	webhooks webhook.State
	// failure is why that could not be found out, or why a webhook could not be written, or nil. Then webhooks is
	// webhook.Missing.
	failure error
}

// isAwaited reports whether more is usually known soon: the operator adds the webhooks that are missing, and the API
// server validates the limits.
func (e enforcement) isAwaited() bool {
	return e.webhooks == webhook.Missing && e.failure == nil || e.untried != nil
}

func newPolls() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPoll, lastPoll)
}

// nextPoll returns when to find out again whether a policy space is enforced: 0 if only events require it.
func (r *Spaces) nextPoll(space string, e enforcement) time.Duration {
	if e.failure == nil && !e.isAwaited() {
		r.polls.Forget(space)
		return 0
	}
	return r.polls.When(space)
}

// isQuiet reports whether a policy space has no status for its generation yet, and nothing waits for one. Then the
// first status may wait, so that one write suffices.
func (r *Spaces) isQuiet(space *v1alpha1.PolicySpace, namespaces []string) bool {
	return isFirst(space) && len(namespaces) == 0 && r.polls.NumRequeues(space.Name) < quietPolls
}

// enforceNamespaces puts the limit on the number of namespaces into the status of a policy space once it is enforced.
func enforceNamespaces(space *v1alpha1.PolicySpace, enforced enforcement) {
	limit, isLimited := quota.Hard(space)[quota.Namespaces]
	if !isLimited || enforced.webhooks != webhook.Configured {
		return
	}
	if space.Status.Hard = maps.Clone(space.Status.Hard); space.Status.Hard == nil {
		space.Status.Hard = corev1.ResourceList{}
	}
	space.Status.Hard[quota.Namespaces] = limit
}

// need is a plugin that restricts something for a policy space, and how its webhook must be for that.
type need struct {
	plugin     string
	isAsNeeded func(*admissionregistrationv1.ValidatingWebhook) bool
}

// needsOf returns the plugins for what a policy space restricts, except for quotaPlugin, whose webhook never changes.
func needsOf(space *v1alpha1.PolicySpace) []need {
	var needs []need
	if limited := limitedResources([]v1alpha1.PolicySpace{*space}); len(limited) > 0 {
		needs = append(needs, need{sequencerPlugin, func(w *admissionregistrationv1.ValidatingWebhook) bool {
			return hasRules(w.Rules, limited)
		}})
	}
	if quota.LimitsNamespaces(space) {
		needs = append(needs, need{limitedPlugin, func(w *admissionregistrationv1.ValidatingWebhook) bool {
			return isAskedAbout(w.MatchConditions, space.Name)
		}})
	}
	if space.Spec.SelfService != nil {
		needs = append(needs, need{selfServicePlugin, func(*admissionregistrationv1.ValidatingWebhook) bool {
			return true
		}})
	}
	return needs
}

// hasRules reports whether one of the rules names each resource.
func hasRules(rules []admissionregistrationv1.RuleWithOperations, resources []schema.GroupResource) bool {
	for _, one := range resources {
		if !slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, one.Group) && slices.Contains(rule.Resources, one.Resource)
		}) {
			return false
		}
	}
	return true
}

// isAskedAbout reports whether the match conditions of NamespaceQuota.limitedWebhooks hold for a policy space.
func isAskedAbout(conditions []admissionregistrationv1.MatchCondition, space string) bool {
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool {
		return c.Name == placingAnywhere || strings.Contains(c.Expression, "'"+space+"'")
	})
}

// isRestricting reports whether a policy space limits objects or namespaces, or has rules for self-service.
func isRestricting(space *v1alpha1.PolicySpace) bool {
	return len(needsOf(space)) > 0
}

// enforcementOf returns whether the API server asks the operator about what a policy space restricts. What a policy
// space was Ready for stays in force as long as the webhooks exist, so then only that is checked.
func (r *Spaces) enforcementOf(ctx context.Context, space *v1alpha1.PolicySpace) enforcement {
	needs := needsOf(space)
	if len(needs) == 0 {
		return enforcement{}
	}
	state, err := r.Stored.State(ctx, v1alpha1.WebhookName, quotaPlugin)
	isReady := !isFirst(space) && apimeta.IsStatusConditionTrue(space.Status.Conditions, v1alpha1.PolicySpaceReady)
	for _, each := range needs {
		if err != nil || state != webhook.Configured || isReady {
			break
		}
		state, err = r.Stored.Asks(ctx, v1alpha1.WebhookName, each.plugin, each.isAsNeeded)
	}
	return enforcement{webhooks: state, failure: err}
}

// invalidLimits returns why the API server accepts no ResourceQuota with the limits of a policy space, or "": admission
// did not see a policy space that was written while no replica answered. It finds that out for the first status of a
// generation, and later reads it there. It returns an error if that is unknown.
func (r *Spaces) invalidLimits(ctx context.Context, space *v1alpha1.PolicySpace) (string, error) {
	if !isFirst(space) {
		ready := apimeta.FindStatusCondition(space.Status.Conditions, v1alpha1.PolicySpaceReady)
		if ready != nil && ready.Reason == reasonInvalid {
			return ready.Message, nil
		}
		return "", nil
	}
	started := time.Now()
	if started.Before(r.failed.until) && len(quota.Hard(space)) > 0 {
		return "", r.failed.err
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	invalid, err := tryLimits(ctx, r.Clientset.CoreV1().ResourceQuotas(v1alpha1.OperatorNamespace), space)
	if err != nil {
		r.failed = newFailedTrial(err, started, time.Now())
		return "", err
	}
	if invalid != "" {
		invalid += ": correct spec.quota.hard"
	}
	return invalid, nil
}

// failedTrial is the last trial of limits that failed.
type failedTrial struct {
	err error
	// until is when limits are tried again. The cause is the API server, or a webhook for ResourceQuotas that does not
	// answer. So before that time, other limits would fail, too, and all policy spaces would wait for each trial.
	until time.Time
}

func newFailedTrial(err error, started, ended time.Time) failedTrial {
	return failedTrial{err, ended.Add(max(firstPoll, trialShare*ended.Sub(started)))}
}

// isFirst reports whether the status is of an earlier generation, empty, or of limits that could not be tried.
func isFirst(space *v1alpha1.PolicySpace) bool {
	return space.Status.ObservedGeneration != space.Generation
}
