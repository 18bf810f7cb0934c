package policyspace

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// selfServicePlugin is the name of the plugin for the rules of spec.selfService, in package selfservice.
const selfServicePlugin = "self-service"

// reasonInvalid is the reason of the condition Ready of a policy space whose limits no ResourceQuota can have.
const reasonInvalid = "InvalidLimits"

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
	// webhooks is whether the API server asks the operator.
	webhooks webhook.State
	// failure is why that could not be found out, or nil. Then webhooks is webhook.Missing.
	failure error
}

// isAwaited reports whether the API server asks soon: the operator adds what is missing.
func (e enforcement) isAwaited() bool { return e.webhooks == webhook.Missing && e.failure == nil }

// nextCheck returns when to ask again: 0 if only events require it.
func (e enforcement) nextCheck() time.Duration {
	switch {
	case e.failure != nil:
		return statusDelay
	case e.isAwaited():
		return freshnessPoll
	}
	return 0
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
// generation, and later reads it there. It returns an error if that is unknown and may be known soon.
func (r *Spaces) invalidLimits(ctx context.Context, space *v1alpha1.PolicySpace) (string, error) {
	if !isFirst(space) {
		ready := apimeta.FindStatusCondition(space.Status.Conditions, v1alpha1.PolicySpaceReady)
		if ready != nil && ready.Reason == reasonInvalid {
			return ready.Message, nil
		}
		return "", nil
	}
	err := tryLimits(ctx, r.Clientset.CoreV1().ResourceQuotas(v1alpha1.OperatorNamespace), space)
	switch {
	case apierrors.IsInvalid(err):
		return invalidMessage(space, err) + ": correct spec.quota.hard", nil
	case apierrors.IsForbidden(err):
		return "", nil // by a policy or a quota of others, which says nothing about the limits
	}
	return "", err
}

// isFirst reports whether the status is of an earlier generation, or empty.
func isFirst(space *v1alpha1.PolicySpace) bool {
	return space.Status.ObservedGeneration != space.Generation
}
