package population

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Each call ends holdReserve before the API server's timeout, and asks the client to try again.
const (
	holdTimeoutSeconds = 10
	holdReserve        = 2 * time.Second
)

// Hold delays writes into a namespace until the namespace is initialized, except for writes of initializers. It reads
// the cache of namespaces, and every replica runs it.
type Hold struct {
	namespaces client.Reader
	reviews    authorizationclient.SubjectAccessReviewInterface
	patience   time.Duration

	mu sync.Mutex
	// changed has a channel for each namespace that requests wait for. It is closed, and forgotten, when the namespace
	// changes.
	changed map[string]chan struct{}
}

// NewHold returns the validator. Its waiting requests follow the informer of namespaces.
func NewHold(
	ctx context.Context, namespaces cache.Cache, reviews authorizationclient.SubjectAccessReviewInterface,
) (*Hold, error) {
	h := &Hold{
		namespaces: namespaces, reviews: reviews,
		patience: holdTimeoutSeconds*time.Second - holdReserve, changed: map[string]chan struct{}{},
	}
	return h, watch.OnChange(ctx, namespaces, &corev1.Namespace{}, h.wake)
}

// wake lets the requests that wait for a namespace read it again.
func (h *Hold) wake(before, after *corev1.Namespace) {
	name := cmp.Or(after, before).Name
	h.mu.Lock()
	defer h.mu.Unlock()
	if change, ok := h.changed[name]; ok {
		close(change)
		delete(h.changed, name)
	}
}

// nextChange returns a channel that is closed when a namespace changes.
func (h *Hold) nextChange(namespace string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed[namespace] == nil {
		h.changed[namespace] = make(chan struct{})
	}
	return h.changed[namespace]
}

// Validate holds a write until its namespace is initialized. Then a deletion goes on, and the client has to repeat
// every other write, because the API server has judged this one by the namespace as it was before: by its labels, for
// example those of Pod Security Admission, by its LimitRanges and ServiceAccounts, and by the policies that select it.
// In a namespace that was deleted meanwhile, the API server refuses the repeated creation, and an update goes on: it
// may remove a finalizer. It asks about no write in a namespace that it knows to be open, so a late cache of the
// operator, or of the API server, only delays the write.
//
// The plugins after Hold decide by what is in the namespace, for example by RoleBindings, of which their caches may be
// late. So they are not asked about a write that waited and must be repeated, also if the request is here because of
// another plugin's webhook.
func (h *Hold) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Resource.Resource == "localsubjectaccessreviews" || isExemption(request) {
		return nil
	}
	isAsked := request.Revision == webhook.OwnWebhook // or the request is here for the sake of another plugin
	ctx, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	ns, err := h.get(ctx, request.Namespace)
	if err != nil || !isAsked && ns != nil && isOpen(ns) || h.isInitializer(ctx, request) {
		return err
	}
	for {
		change := h.nextChange(request.Namespace)
		found, err := h.get(ctx, request.Namespace)
		switch {
		case err != nil:
			return err
		case found == nil && ns != nil, found != nil && isOpen(found):
			isGone := found == nil || found.DeletionTimestamp != nil
			goesOn := request.Operation == admissionv1.Delete || isGone && request.Operation == admissionv1.Update
			if goesOn || !isAsked && ns == nil {
				return nil
			}
			return webhook.Defer(codes.Held, repeats(request.Namespace, found), webhook.RetryAfter)
		}
		if denial := denialOf(found); denial != "" {
			return webhook.Deny(codes.PopulationFailed, denial)
		}
		ns = found
		select {
		case <-change:
		case <-ctx.Done():
			return webhook.Defer(codes.Held, waitsFor(request.Namespace, ns), webhook.RetryAfter)
		}
	}
}

// repeats returns the message for a write into a namespace that has been initialized or deleted. ns is nil if it is
// gone.
func repeats(name string, ns *corev1.Namespace) string {
	if ns == nil || ns.DeletionTimestamp != nil {
		return fmt.Sprintf("namespace %s was deleted while it was initialized", name)
	}
	return fmt.Sprintf("namespace %s has just been initialized: repeat the request, which its policies did not judge yet",
		name)
}

// isExemption reports whether a request writes a TemplateExemption. It is not delayed: an exemption can be what opens a
// namespace that cannot be populated, and admission checks the requester's right to it.
func isExemption(request *webhook.Request) bool {
	return request.Resource.Group == v1alpha1.GroupVersion.Group &&
		request.Resource.Resource == v1alpha1.TemplateExemptions.Resource
}

// get returns a namespace, or nil if the cache does not have it, which may be behind.
func (h *Hold) get(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := h.namespaces.Get(ctx, client.ObjectKey{Name: name}, ns, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return ns, err
}

// isOpen reports whether users may write into a namespace. The API server itself decides about one that is being
// deleted.
func isOpen(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil || !initialize.Initializing(ns)
}

// isInitializer reports whether the requester may initialize the namespace. The check names no namespace, so that a
// RoleBinding to a role with all verbs, which a template may give to the creator, does not count. If the API server
// cannot answer, the request waits like all others.
func (h *Hold) isInitializer(ctx context.Context, request *webhook.Request) bool {
	allowed, err := webhook.IsAllowed(ctx, h.reviews, request.UserInfo, authorizationv1.ResourceAttributes{
		Verb: v1alpha1.VerbInitialize, Resource: "namespaces", Version: "v1", Name: request.Namespace,
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "can't ask whether a user initializes namespaces")
	}
	return allowed
}

// denialOf returns why users may not write into an initializing namespace until a person acts, or an empty string if
// the namespace may open by itself. ns is nil if the namespace is unknown.
func denialOf(ns *corev1.Namespace) string {
	if ns == nil || !slices.Contains(initialize.Pending(ns), v1alpha1.TemplateInitializer) {
		return ""
	}
	condition := populate.PopulatedCondition(ns)
	if !populate.HasFailed(condition) {
		return ""
	}
	return fmt.Sprintf("namespace %s could not be populated, and writes into it are denied until %s: %s: %s",
		ns.Name, remedy(condition.Reason), condition.Reason, condition.Message)
}

// remedy returns who can do what about a failure, by the reason of the Populated condition.
func remedy(reason string) string {
	switch reason {
	case populate.ConditionTemplateNotAccepted:
		return "an administrator corrects the template"
	case populate.ConditionValueMissing:
		return "a user who may set the label or annotation sets it"
	case populate.ConditionPolicySpaceNotFound:
		return "an administrator creates the policy space, or the namespace gets another label " +
			v1alpha1.PolicySpaceLabel
	case populate.ConditionNotAdopted:
		return "a user who may delete Roles, RoleBindings and ResourceQuotas in it lets the tree adopt it"
	}
	return "an administrator corrects the template, or resolves what prevents the object"
}

// waitsFor returns a message about why a namespace is not initialized yet. ns is nil if the namespace is unknown.
func waitsFor(name string, ns *corev1.Namespace) string {
	message := fmt.Sprintf("namespace %s is being initialized", name)
	if ns == nil {
		return message
	}
	if pending := initialize.Pending(ns); len(pending) > 0 {
		message += ": it waits for " + strings.Join(pending, ", ")
	}
	if condition := populate.PopulatedCondition(ns); condition != nil && condition.Status == corev1.ConditionFalse {
		message += fmt.Sprintf(" (%s: %s)", condition.Reason, condition.Message)
	}
	return message
}

// Plugin returns the row of the chain.
func (h *Hold) Plugin() webhook.Plugin {
	rules := []admissionregistrationv1.RuleWithOperations{
		webhook.Rule("*", "*", admissionregistrationv1.NamespacedScope, []string{"*/*"},
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
	}
	// The operator writes every object of a new namespace, so no authorizer is asked about it.
	conditions := webhook.Every("a-write-of-no-initializer",
		"request.userInfo.username != '"+v1alpha1.OperatorUser+"'",
		"request.resource.resource != 'localsubjectaccessreviews'",
		"request.resource.group != '"+v1alpha1.GroupVersion.Group+"' || request.resource.resource != '"+
			v1alpha1.TemplateExemptions.Resource+"'",
		"!authorizer.group('').resource('namespaces').name(request.namespace)."+
			"check('"+v1alpha1.VerbInitialize+"').allowed()")
	own := webhook.Webhook{Rules: rules, MatchConditions: conditions, Revision: webhook.OwnWebhook}
	return webhook.Plugin{
		Name: "hold", Validator: h, Rules: rules,
		Webhooks: func(context.Context) ([]webhook.Webhook, error) { return []webhook.Webhook{own}, nil },
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: v1alpha1.InitializingLabel, Operator: metav1.LabelSelectorOpExists},
		}},
		DecidesFirst:   true,
		FailurePolicy:  admissionregistrationv1.Fail, // the namespace has no policies yet
		TimeoutSeconds: holdTimeoutSeconds,
	}
}
