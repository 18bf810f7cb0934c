package population

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// cachedNamespace is a cache of one namespace, which may be nil.
type cachedNamespace struct {
	informertest.FakeInformers

	mu        sync.Mutex
	namespace *corev1.Namespace
}

// change replaces the namespace by another one, or deletes it, and tells the handlers of the informer.
func (c *cachedNamespace) change(t *testing.T, to *corev1.Namespace) {
	t.Helper()
	c.mu.Lock()
	from := c.namespace
	c.namespace = to
	c.mu.Unlock()
	informer, err := c.FakeInformerFor(t.Context(), &corev1.Namespace{})
	require.NoError(t, err)
	switch {
	case from == nil:
		informer.Add(to)
	case to == nil:
		informer.Delete(from)
	default:
		informer.Update(from, to)
	}
}

func (c *cachedNamespace) Get(
	_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption,
) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namespace == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Name)
	}
	c.namespace.DeepCopyInto(object.(*corev1.Namespace))
	return nil
}

// accessReviews answer that a user is an initializer, is not, or cannot be asked about.
type accessReviews struct {
	authorizationclient.SubjectAccessReviewInterface
	isInitializer bool
	err           error
}

func (r accessReviews) Create(
	_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	answer := review.DeepCopy()
	// The right names the namespace and is not one in the namespace, which its owner could grant.
	answer.Status.Allowed = r.isInitializer && *review.Spec.ResourceAttributes == authorizationv1.ResourceAttributes{
		Verb: v1alpha1.VerbInitialize, Resource: "namespaces", Version: "v1", Name: "team-a",
	}
	return answer, r.err
}

func TestHold(t *testing.T) {
	t.Parallel()
	open := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}
	closed := initializing("a,namespace-template")
	withCondition := func(status corev1.ConditionStatus, reason, message string) *corev1.Namespace {
		ns := closed.DeepCopy()
		ns.Status.Conditions = append(ns.Status.Conditions, corev1.NamespaceCondition{
			Type: v1alpha1.NamespacePopulated, Status: status, Reason: reason, Message: message,
		})
		return ns
	}
	const (
		gone   = "namespace team-a was deleted while it was initialized"
		repeat = "namespace team-a has just been initialized: repeat the request, which its policies did not judge yet"
	)
	failed := withCondition(corev1.ConditionFalse, "ObjectsFailed", "x: no")
	retrying := withCondition(corev1.ConditionFalse, "Retrying", "x: not yet")
	onlyOthersPending := failed.DeepCopy()
	onlyOthersPending.Annotations[v1alpha1.PendingAnnotation] = "a"
	deletedAfterFailure := failed.DeepCopy()
	deletedAfterFailure.DeletionTimestamp = new(metav1.Unix(1, 0))
	const denied = "namespace team-a could not be populated, and writes into it are denied until "
	deleted := closed.DeepCopy()
	deleted.DeletionTimestamp = new(metav1.Unix(1, 0))
	const patience = 8 * time.Second
	for name, test := range map[string]struct {
		namespace *corev1.Namespace
		// operation is UPDATE by default.
		operation admissionv1.Operation
		// ofAnother says that the webhook of another plugin asks.
		ofAnother bool
		resource  string
		reviews   accessReviews
		// later replaces the namespace in the cache after a second.
		later  *corev1.Namespace
		isGone bool
		// wait is how long the request takes. message is why it is deferred then, and denial why it is denied.
		wait            time.Duration
		message, denial string
	}{
		"a namespace that is open":                     {namespace: open, message: repeat},
		"a namespace that is open, for another plugin": {namespace: open, ofAnother: true},
		"a deletion in a namespace that is open":       {namespace: open, operation: admissionv1.Delete},
		"an initializer":                               {namespace: closed, reviews: accessReviews{isInitializer: true}},
		"an initializer of a namespace that is open":   {namespace: open, reviews: accessReviews{isInitializer: true}},
		"a question about one's own rights":            {namespace: closed, resource: "localsubjectaccessreviews"},
		"a namespace that opens":                       {namespace: closed, later: open, wait: time.Second, message: repeat},
		"a namespace that opens, for another plugin": {
			namespace: closed, ofAnother: true, later: open, wait: time.Second, message: repeat,
		},
		"a namespace that the cache learns of, for another plugin": {ofAnother: true, later: open, wait: time.Second},
		"a deletion in a namespace that opens": {
			namespace: closed, operation: admissionv1.Delete, later: open, wait: time.Second,
		},
		"a namespace that the cache learns of":     {later: open, wait: time.Second, message: repeat},
		"an update in a namespace being deleted":   {namespace: deleted},
		"an update in a namespace that is deleted": {namespace: closed, later: deleted, wait: time.Second},
		"a creation in a namespace being deleted":  {namespace: deleted, operation: admissionv1.Create, message: gone},
		"a creation in a namespace that is deleted": {
			namespace: closed, operation: admissionv1.Create, later: deleted, wait: time.Second, message: gone,
		},
		"a creation in a namespace that is gone": {
			namespace: closed, operation: admissionv1.Create, isGone: true, wait: time.Second, message: gone,
		},
		"a deletion in a namespace being deleted": {namespace: deleted, operation: admissionv1.Delete},
		"a namespace that stays closed": {
			namespace: closed, wait: patience,
			message: "namespace team-a is being initialized: it waits for a, namespace-template",
		},
		"a namespace whose population failed": {
			namespace: failed,
			denial: denied + "an administrator corrects the template, or resolves what prevents the object: " +
				"ObjectsFailed: x: no",
		},
		"a namespace whose population fails while the request waits": {
			namespace: closed, later: failed, wait: time.Second,
			denial: denied + "an administrator corrects the template, or resolves what prevents the object: " +
				"ObjectsFailed: x: no",
		},
		"a namespace whose template is broken": {
			namespace: withCondition(corev1.ConditionFalse, "TemplateNotAccepted", "t: no"),
			denial:    denied + "an administrator corrects the template: TemplateNotAccepted: t: no",
		},
		"a namespace whose policy space is missing": {
			namespace: withCondition(corev1.ConditionFalse, "PolicySpaceNotFound", "create it"),
			denial: denied + "an administrator creates the policy space, or the namespace gets another label " +
				"policy.nstpl.dev/policyspace: PolicySpaceNotFound: create it",
		},
		"a namespace that is not adopted": {
			namespace: withCondition(corev1.ConditionFalse, "NotAdopted", "existed before"),
			denial: denied + "a user who may delete Roles, RoleBindings and ResourceQuotas in it lets the tree " +
				"adopt it: NotAdopted: existed before",
		},
		"an initializer of a namespace whose population failed": {
			namespace: failed, reviews: accessReviews{isInitializer: true},
		},
		"a namespace that is deleted after its population failed": {namespace: deletedAfterFailure},
		"a question about one's own rights after a failure": {
			namespace: failed, resource: "localsubjectaccessreviews",
		},
		"a namespace whose failure may pass": {
			namespace: retrying, wait: patience,
			message: "namespace team-a is being initialized: it waits for a, namespace-template (Retrying: x: not yet)",
		},
		"a namespace whose failure passes": {namespace: retrying, later: open, wait: time.Second, message: repeat},
		"a populated namespace that waits for another initializer": {
			namespace: withCondition(corev1.ConditionTrue, "Populated", "1 object"), wait: patience,
			message: "namespace team-a is being initialized: it waits for a, namespace-template",
		},
		"a failure that does not close the namespace": {
			namespace: onlyOthersPending, wait: patience,
			message: "namespace team-a is being initialized: it waits for a (ObjectsFailed: x: no)",
		},
		"a namespace that remains unknown": {wait: patience, message: "namespace team-a is being initialized"},
		"a user who cannot be asked about": {
			namespace: closed, reviews: accessReviews{isInitializer: true, err: errors.New("no")}, later: open,
			wait: time.Second, message: repeat,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cache := &cachedNamespace{namespace: test.namespace}
				hold, err := NewHold(t.Context(), cache, test.reviews)
				require.NoError(t, err)
				if test.later != nil || test.isGone {
					time.AfterFunc(time.Second, func() { cache.change(t, test.later) })
				}
				request := &webhook.Request{Request: ctrladmission.Request{}}
				request.Namespace, request.Resource.Resource = "team-a", test.resource
				request.Operation = cmp.Or(test.operation, admissionv1.Update)
				if !test.ofAnother {
					request.Revision = webhook.OwnWebhook
				}
				start := time.Now()
				err = hold.Validate(t.Context(), request)
				require.Equal(t, test.wait, time.Since(start))
				switch {
				case test.denial != "":
					require.Equal(t, webhook.Deny(codes.PopulationFailed, test.denial), err)
					return
				case test.message == "":
					require.NoError(t, err)
					return
				}
				deferred, isDeferred := errors.AsType[*webhook.Deferred](err)
				require.True(t, isDeferred, err)
				require.Equal(t, webhook.Defer(codes.Held, test.message, time.Second), deferred)
			})
		})
	}
}

// A request that has read a namespace after a change waits for the next one.
func TestAChangeWakesARequestOnce(t *testing.T) {
	t.Parallel()
	hold, err := NewHold(t.Context(), &cachedNamespace{}, accessReviews{})
	require.NoError(t, err)
	ns := initializing("a")
	first := hold.nextChange(ns.Name)
	hold.wake(nil, ns)
	require.True(t, isClosed(first))
	second := hold.nextChange(ns.Name)
	require.False(t, isClosed(second))
	hold.wake(ns, ns)
	require.True(t, isClosed(second))
	hold.wake(ns, nil)
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
