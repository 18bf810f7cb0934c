package admission

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// turnTime is how long a request has to be written down until the next one has its turn. What is refused elsewhere
	// never is.
	turnTime = 100 * time.Millisecond
	// longTurn is that time while the API server turns out to be slower: for crowdedTime after requests of a namespace
	// came together all the same. Otherwise those who try again would always come together again, and none would be let
	// in.
	longTurn    = 2 * time.Second
	crowdedTime = time.Minute
	// atOnce is more than the requests that an API server has under way: --max-requests-inflight and
	// --max-mutating-requests-inflight.
	atOnce = 600
)

// Turns has the requests of a namespace come one by one where a quota of a policyspace has little room left. The API
// server writes down the use of several at once: then they could only be let in or refused together, and less than
// there is room for would be let in. It refuses at once what there is no room for, so that nothing else is charged for
// it, and dry runs too. The decision is Quota's.
type Turns struct {
	quota *Quota

	mu sync.Mutex
	// lines are by namespace, where there is one.
	lines map[string]*line
	// crowded is when requests came together last, by namespace, where that is not long ago.
	crowded map[string]time.Time
}

// line is those whose turn comes in a namespace. Whose turn it is has left it.
type line struct {
	// over ends the turn of the one that has it, if it doesn't end before.
	over    *time.Timer
	waiting []chan struct{}
	// last is what ended a turn last, and times how often it was seen since.
	last  decided
	times int
}

// NewTurns returns the validator. It learns of what is written down from quota.
func NewTurns(quota *Quota) *Turns {
	t := &Turns{quota: quota, lines: map[string]*line{}, crowded: map[string]time.Time{}}
	quota.written = t.decided
	return t
}

// Webhooks is for the table: the API server asks about what quotas of policyspaces limit, and about nothing as long as
// there are none.
func (t *Turns) Webhooks(ctx context.Context) ([]Webhook, error) {
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
			rule(one.Group, "*", admissionregistrationv1.NamespacedScope, []string{one.Resource},
				admissionregistrationv1.Create))
	}
	return []Webhook{{Rules: rules, Revision: ownWebhook}}, nil
}

// namespacesInSpaces leaves out what no quota of a policyspace can be about.
func namespacesInSpaces() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.PolicySpaceLabel, Operator: metav1.LabelSelectorOpExists},
	}}
}

// Validate is asked about creations, by its own webhook alone: a request has one turn.
func (t *Turns) Validate(ctx context.Context, request *Request) error {
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
	if spacious || dryRun(request) || !t.wait(ctx, request.Namespace) {
		return nil
	}
	// Those before may have taken what was left.
	if _, err := t.look(ctx, spaces, created, false); err != nil {
		t.end(request.Namespace)
		return t.refuse(request, err)
	}
	return nil
}

// refuse is Quota's, but what is not counted yet is a reason to come again: nothing is charged for the request.
func (t *Turns) refuse(request *Request, err error) error {
	if uncounted, ok := errors.AsType[*quota.UncountedError](err); ok {
		return &Later{Message: uncounted.Error(), After: comeAgain}
	}
	return t.quota.refuse(request, err, false)
}

// look tells whether spaces have room for whatever may come at once. The error says that there is no room for one more.
// A dry run takes no bookings away.
func (t *Turns) look(
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

// wait returns when it is the request's turn. It tells whether it is: nobody waits for ever.
func (t *Turns) wait(ctx context.Context, namespace string) bool {
	t.mu.Lock()
	at := t.lines[namespace]
	if at == nil {
		t.lines[namespace] = &line{over: t.limit(namespace)}
		t.mu.Unlock()
		return true
	}
	called := make(chan struct{})
	at.waiting = append(at.waiting, called)
	t.mu.Unlock()
	select {
	case <-called:
		return true
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if place := slices.Index(at.waiting, called); place >= 0 {
		at.waiting = slices.Delete(at.waiting, place, place+1)
		return false
	}
	return true // it was called just then
}

// retries is how often the API server tries to write down what was refused.
const retries = 3

// decided ends a turn for each request that was decided on, though more than one replica tells of it, and the API
// server tries again.
func (t *Turns) decided(namespace string, what decided) {
	t.mu.Lock()
	if what.crowded {
		maps.DeleteFunc(t.crowded, func(_ string, at time.Time) bool { return time.Since(at) > crowdedTime })
		t.crowded[namespace] = time.Now()
		what.crowded = false // it may be exceeded when it is tried again
	}
	at := t.lines[namespace]
	if at == nil {
		t.mu.Unlock()
		return
	}
	again := at.last == what
	if at.times++; !again || what.refused && at.times > retries {
		at.last, at.times, again = what, 0, false
	}
	t.mu.Unlock()
	if !again {
		t.end(namespace)
	}
}

// end ends whosoever's turn it is in a namespace.
func (t *Turns) end(namespace string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.lines[namespace]
	if at == nil {
		return
	}
	at.over.Stop()
	if len(at.waiting) == 0 {
		delete(t.lines, namespace)
		return
	}
	close(at.waiting[0])
	at.waiting = at.waiting[1:]
	at.over = t.limit(namespace)
}

// limit ends the turn that begins in a namespace, if nothing else does.
func (t *Turns) limit(namespace string) *time.Timer {
	limit := turnTime
	if time.Since(t.crowded[namespace]) < crowdedTime {
		limit = longTurn
	}
	return time.AfterFunc(limit, func() { t.end(namespace) })
}
