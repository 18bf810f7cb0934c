package population

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Each call ends holdReserve before the API server gives it up, and the client is asked to come again.
const (
	holdTimeoutSeconds = 10
	holdReserve        = 2 * time.Second
)

// Hold has writes into a namespace that is being initialized wait until it is, but for those of initializers
// ("Namespace initialization" of the Namespace Population proposal). It goes by the cache of namespaces, on every
// replica.
type Hold struct {
	namespaces client.Reader
	reviews    authorizationclient.SubjectAccessReviewInterface
	patience   time.Duration

	mu sync.Mutex
	// turns are closed, and forgotten, when something about their namespace is new.
	turns map[string]chan struct{}
}

// NewHold returns the validator. It looks at namespaces again as their informer tells of them.
func NewHold(
	ctx context.Context, namespaces cache.Cache, reviews authorizationclient.SubjectAccessReviewInterface,
) (*Hold, error) {
	h := &Hold{
		namespaces: namespaces, reviews: reviews,
		patience: holdTimeoutSeconds*time.Second - holdReserve, turns: map[string]chan struct{}{},
	}
	informer, err := namespaces.GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: h.look, UpdateFunc: func(_, ns any) { h.look(ns) }, DeleteFunc: h.look,
	})
	return h, err
}

// look wakes those who wait for a namespace.
func (h *Hold) look(item any) {
	name, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(item)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if turn, ok := h.turns[name]; ok {
		close(turn)
		delete(h.turns, name)
	}
}

// turn returns what is closed when something about a namespace is new.
func (h *Hold) turn(namespace string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.turns[namespace] == nil {
		h.turns[namespace] = make(chan struct{})
	}
	return h.turns[namespace]
}

// Validate is asked about all writes. It lets them pass when the namespace is open.
func (h *Hold) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Resource.Resource == "localsubjectaccessreviews" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	ns, err := h.get(ctx, request.Namespace)
	if err != nil || ns != nil && open(ns) || h.initializes(ctx, request) {
		return err
	}
	for {
		turn := h.turn(request.Namespace)
		found, err := h.get(ctx, request.Namespace)
		switch {
		case err != nil:
			return err
		case found == nil && ns != nil, found != nil && open(found):
			return nil // if it is gone, the API server knows best
		}
		ns = found
		select {
		case <-turn:
		case <-ctx.Done():
			return &webhook.Deferred{Message: waitsFor(request.Namespace, ns), After: webhook.RetryAfter}
		}
	}
}

// get returns a namespace, or nil if the cache has none: it may be behind.
func (h *Hold) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := h.namespaces.Get(ctx, client.ObjectKey{Name: name}, ns, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return ns, err
}

// open tells whether a namespace may be written into. What is deleted is the API server's business.
func open(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || !initialize.Initializing(ns)
}

// initializes tells whether a request is made by an initializer. Who can't be asked about waits like all others.
func (h *Hold) initializes(ctx context.Context, request *webhook.Request) bool {
	review := webhook.ReviewOf(request.UserInfo)
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: v1alpha1.VerbInitialize, Resource: "namespaces", Version: "v1", Namespace: request.Namespace,
		Name: request.Namespace,
	}
	answer, err := h.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "can't ask whether a user initializes namespaces")
		return false
	}
	return answer.Status.Allowed
}

// waitsFor says why a namespace is not open yet. ns is nil if it is not known.
func waitsFor(name string, ns *corev1.Namespace) string {
	message := fmt.Sprintf("namespace %s is being initialized", name)
	if ns == nil {
		return message
	}
	if pending := initialize.Pending(ns); len(pending) > 0 {
		message += ": it waits for " + strings.Join(pending, ", ")
	}
	for _, condition := range ns.Status.Conditions {
		if condition.Type == v1alpha1.NamespacePopulated && condition.Status == corev1.ConditionFalse {
			message += fmt.Sprintf(" (%s: %s)", condition.Reason, condition.Message)
		}
	}
	return message
}

// Plugin returns the row of the chain.
func (h *Hold) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "hold", Validator: h,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule("*", "*", admissionregistrationv1.NamespacedScope, []string{"*/*"},
				admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: v1alpha1.InitializingLabel, Operator: metav1.LabelSelectorOpExists},
		}},
		MatchConditions: []admissionregistrationv1.MatchCondition{
			{
				Name:       "a-write",
				Expression: "request.resource.resource != 'localsubjectaccessreviews'",
			},
			{
				Name: "not-of-an-initializer",
				Expression: "!authorizer.group('').resource('namespaces').namespace(request.namespace)." +
					"name(request.namespace).check('" + v1alpha1.VerbInitialize + "').allowed()",
			},
		},
		FailurePolicy:  admissionregistrationv1.Fail, // the namespace has no policies yet
		TimeoutSeconds: holdTimeoutSeconds,
	}
}
