package policyspace

import (
	"context"
	"errors"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// atOnce is more than the requests that an API server has under way: --max-requests-inflight and
// --max-mutating-requests-inflight.
const atOnce = 600

// Sequencer admits the requests of a namespace one after the other where the quota of a policy space has little room
// left. The API server adds up the usage of requests that come at once: QuotaAdmission could only allow or deny them
// together, and would allow fewer than there is room for. It also denies at once, dry runs included, what there is no
// room for, so that no other quota is charged. The decision is QuotaAdmission's.
type Sequencer struct {
	quota *QuotaAdmission
}

// NewSequencer returns the validator.
func NewSequencer(quota *QuotaAdmission) *Sequencer { return &Sequencer{quota: quota} }

// Webhooks is for the table: the API server asks about what quotas of policyspaces limit, and about nothing as long as
// there are none.
func (t *Sequencer) Webhooks(ctx context.Context) ([]webhook.Webhook, error) {
	list := &v1alpha1.PolicySpaceList{}
	if err := t.quota.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var created []schema.GroupResource
	for i := range list.Items {
		for name := range quota.Hard(&list.Items[i]) {
			if one := quota.Requested(name); !slices.Contains(created, one) {
				created = append(created, one)
			}
		}
	}
	if len(created) == 0 {
		return nil, nil
	}
	slices.SortFunc(created, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	rules := make([]admissionregistrationv1.RuleWithOperations, 0, len(created))
	for _, one := range created {
		rules = append(rules,
			webhook.Rule(one.Group, "*", admissionregistrationv1.NamespacedScope, []string{one.Resource},
				admissionregistrationv1.Create))
	}
	return []webhook.Webhook{{Rules: rules, Revision: webhook.OwnWebhook}}, nil
}

// namespacesInSpaces leaves out what no quota of a policyspace can be about.
func namespacesInSpaces() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.PolicySpaceLabel, Operator: metav1.LabelSelectorOpExists},
	}}
}

// Validate is asked about creations, by its own webhook alone: a request has one turn.
func (t *Sequencer) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Revision == "" || request.Operation != admissionv1.Create || request.SubResource != "" {
		return nil
	}
	created := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
	spaces, err := t.counted(ctx, request, created)
	if err != nil {
		return t.refuse(request, err)
	}
	if len(spaces) == 0 {
		return nil
	}
	spacious, err := t.look(ctx, spaces, created, dryRun(request))
	if err != nil {
		return t.refuse(request, err)
	}
	if spacious || dryRun(request) || !t.quota.sequence.acquire(ctx, request.Namespace) {
		return nil
	}
	// Those before may have taken what was left.
	if _, err := t.look(ctx, spaces, created, false); err != nil {
		t.quota.sequence.release(request.Namespace)
		return t.refuse(request, err)
	}
	return nil
}

// refuse is Quota's, but what is not counted yet is a reason to come again: nothing is charged for the request.
func (t *Sequencer) refuse(request *webhook.Request, err error) error {
	if uncounted, ok := errors.AsType[*quota.UncountedError](err); ok {
		return &webhook.Deferred{Message: uncounted.Error(), After: webhook.RetryAfter}
	}
	return t.quota.refuse(request, err, false)
}

// look tells whether spaces have room for whatever may come at once. The error says that there is no room for one more.
// A dry run takes no bookings away.
func (t *Sequencer) look(
	ctx context.Context, spaces []string, created schema.GroupResource, dryRun bool,
) (spacious bool, err error) {
	spacious = true
	certain := true
	for _, name := range spaces {
		space, err := t.quota.get(ctx, t.quota.cached, name)
		if err != nil {
			return false, err
		}
		if space == nil {
			continue
		}
		// Where a limit may be met that this request doesn't show, all that it exceeds is said together, by Quota.
		certain = certain && quota.CountsOnly(space, created)
		if certain && quota.Check(space, quota.OneMore(created)) != nil {
			// What the cache has against it may be out of date.
			if space, err = t.quota.get(ctx, t.quota.live, name); err != nil {
				return false, err
			}
			if space == nil {
				continue
			}
			if dryRun {
				err = quota.Check(space, quota.OneMore(created))
			} else {
				_, err = t.quota.makeRoom(ctx, space, quota.OneMore(created))
			}
			if err != nil {
				return false, err
			}
		}
		spacious = spacious && quota.Spacious(space, created, atOnce)
	}
	return spacious, nil
}

// Plugin returns the row of the chain.
func (t *Sequencer) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "quota-turn", Validator: t, NamespaceSelector: namespacesInSpaces(),
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule("*", "*", admissionregistrationv1.NamespacedScope, []string{"*"},
				admissionregistrationv1.Create),
		},
		FailurePolicy: admissionregistrationv1.Ignore, // quota decides, and before anything is counted, hold
		// As long as the API server waits for what it writes down itself.
		TimeoutSeconds: 10, Webhooks: t.Webhooks, Changes: &t.quota.changes,
	}
}
