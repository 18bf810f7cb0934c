package policyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// maxSimultaneous is more than the number of requests that an API server handles at the same time: the sum of
// --max-requests-inflight and --max-mutating-requests-inflight.
const maxSimultaneous = 600

// Sequencer admits the requests of a namespace one after the other where the quota of a policy space has little room
// left. The API server adds up the usage of requests that arrive at the same time: QuotaAdmission could only allow or
// deny them together, and would allow fewer than there is room for. Sequencer also denies requests for which there is
// no room before the API server charges any ResourceQuota. QuotaAdmission decides on all others, except for dry runs:
// the API server charges nothing for them, so Sequencer decides on them alone.
type Sequencer struct {
	quota *QuotaAdmission
}

// Webhooks returns the webhook through which the API server asks about the creation of objects that quotas of policy
// spaces limit. It returns none if there are no limits.
func (s *Sequencer) Webhooks(ctx context.Context) ([]webhook.Webhook, error) {
	list := &v1alpha1.PolicySpaceList{}
	if err := s.quota.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	limited := limitedResources(list.Items)
	if len(limited) == 0 {
		return nil, nil
	}
	rules := make([]admissionregistrationv1.RuleWithOperations, 0, len(limited))
	for _, one := range limited {
		rules = append(rules,
			webhook.Rule(one.Group, "*", admissionregistrationv1.NamespacedScope, []string{one.Resource},
				admissionregistrationv1.Create))
	}
	return []webhook.Webhook{{Rules: rules, Revision: webhook.OwnWebhook}}, nil
}

// limitedResources returns the resources whose creation adds to a usage that some policy space limits, sorted. It omits
// names such as count/, with which the API server would refuse all webhooks: admission did not see a policy space that
// was written while no replica answered.
func limitedResources(spaces []v1alpha1.PolicySpace) []schema.GroupResource {
	var limited []schema.GroupResource
	for i := range spaces {
		for name := range quota.Objects(&spaces[i]) {
			one := quota.Requested(name)
			if len(validation.IsQualifiedName(string(name))) == 0 && !slices.Contains(limited, one) {
				limited = append(limited, one)
			}
		}
	}
	slices.SortFunc(limited, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return limited
}

// inSpaces selects the namespaces that may be in a policy space.
func inSpaces() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.PolicySpaceLabel, Operator: metav1.LabelSelectorOpExists},
	}}
}

// Validate implements webhook.Validator for creations. It handles only requests from its own webhook, so that a request
// is not sequenced twice.
func (s *Sequencer) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Revision == "" || request.Operation != admissionv1.Create || request.SubResource != "" || request.IsDenied {
		return nil // what is denied is never charged, so others would wait for it in vain
	}
	created := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	spaces, err := s.waitCounted(ctx, request, created)
	if err != nil {
		return s.deny(ctx, request, err)
	}
	if len(spaces) == 0 {
		return nil
	}
	if isDryRun(request) {
		return s.deny(ctx, request, s.checkDryRun(ctx, spaces, created, request.Object))
	}
	isSpacious, err := s.checkSpaces(ctx, spaces, created)
	if err != nil {
		return s.deny(ctx, request, err)
	}
	if isSpacious || !s.quota.sequence.acquire(ctx, request.Namespace) {
		return nil
	}
	// The requests before this one may have used the remaining room.
	if _, err := s.checkSpaces(ctx, spaces, created); err != nil {
		s.quota.sequence.release(request.Namespace)
		return s.deny(ctx, request, err)
	}
	return nil
}

// deny is like QuotaAdmission.deny, but asks the client to try again if usage has not been counted yet: no
// ResourceQuota is charged for the request. The API server would ask the ResourceQuotas of the namespace later, so deny
// says if the request exceeds one of them, too.
func (s *Sequencer) deny(ctx context.Context, request *webhook.Request, err error) error {
	if uncounted, ok := errors.AsType[*quota.UncountedError](err); ok {
		return webhook.Defer(codes.QuotaUncounted, uncounted.Error(), webhook.RetryAfter)
	}
	if exceeded, isExceeded := errors.AsType[*quota.ExceededError](err); isExceeded {
		own, errRead := s.quota.denials.ownQuotas(ctx, request.Namespace)
		if errRead != nil {
			return errRead
		}
		for i := range own {
			if exceeded.Inner == "" {
				exceeded.Inner = exceeded.Exceeds(&own[i])
			}
		}
	}
	return s.quota.deny(request, s.quota.passing(ctx, request.Namespace, err), false)
}

// checkDryRun returns a quota.ExceededError if a policy space has no room for an object. It ends no reservations.
func (s *Sequencer) checkDryRun(
	ctx context.Context, spaces []string, created schema.GroupResource, object *unstructured.Unstructured,
) error {
	used, err := quota.UsageOf(created, object)
	if err != nil {
		return fmt.Errorf("read the usage of the object: %w", err)
	}
	for _, name := range spaces {
		var exceeded error
		for _, reader := range []client.Reader{s.quota.cached, s.quota.live} { // the cache may be out of date
			space, err := getSpace(ctx, reader, name)
			if err != nil {
				return err
			}
			exceeded = nil
			if space != nil {
				exceeded = quota.Check(space, quota.Change{New: used})
			}
			if exceeded == nil {
				break
			}
		}
		if exceeded != nil {
			return exceeded
		}
	}
	return nil
}

// checkSpaces reports whether policy spaces have room for all objects of a resource that may be created at the same
// time. The error is a quota.ExceededError if one has no room for one more object.
func (s *Sequencer) checkSpaces(
	ctx context.Context, spaces []string, created schema.GroupResource,
) (isSpacious bool, err error) {
	isSpacious = true
	countsOnly := true
	for _, name := range spaces {
		space, err := getSpace(ctx, s.quota.cached, name)
		if err != nil {
			return false, err
		}
		if space == nil {
			continue
		}
		// If a policy space limits something that the resource alone does not show, such as cpu, QuotaAdmission
		// decides: its error contains all limits that the request exceeds.
		countsOnly = countsOnly && quota.LimitsCountOnly(space, created)
		if countsOnly && quota.Check(space, quota.OneMore(created)) != nil {
			// The cache may be out of date.
			if space, err = getSpace(ctx, s.quota.live, name); err != nil {
				return false, err
			}
			if space == nil {
				continue
			}
			if _, err := s.quota.reclaimRoom(ctx, space, quota.OneMore(created)); err != nil {
				return false, err
			}
		}
		isSpacious = isSpacious && quota.HasRoom(space, created, maxSimultaneous)
	}
	return isSpacious, nil
}

// sequencerPlugin is the name of the plugin of Sequencer.
const sequencerPlugin = "quota-sequencer"

// Plugin returns the row of the admission chain.
func (s *Sequencer) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: sequencerPlugin, Validator: s, NamespaceSelector: inSpaces(),
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule("*", "*", admissionregistrationv1.NamespacedScope, []string{"*"},
				admissionregistrationv1.Create),
		},
		// While no replica answers, the plugin quota denies, and the plugin hold does until a namespace is counted.
		FailurePolicy: admissionregistrationv1.Ignore,
		// The API server waits as long for its own updates of ResourceQuotas.
		TimeoutSeconds: 10, Webhooks: s.Webhooks, Changes: &s.quota.changes,
	}
}
