package attribute

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/bindings"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Attributes sees to it that protected labels and annotations are set, changed and removed by those who hold the roles
// for it ("Protected attributes"). It goes by caches, on every replica.
type Admission struct {
	cached, live client.Reader
	bindings     *bindings.Watch
	exempt       Exempt
	changes      webhook.Changes

	mu sync.Mutex
	// rules are the cached ones, or nil if they changed since.
	rules *attributes.Rules
	// known are the revisions that the cache has reached, or passed.
	known map[string]bool
}

// Exempt are those who are not asked about: who makes objects of templates whose authors were, and who cleans up.
type Exempt struct {
	Users, Groups []string
}

func (e Exempt) has(who attributes.Requester) bool {
	for _, name := range e.Users {
		if who.Is(attributes.Subject{Name: name}) {
			return true
		}
	}
	for _, name := range e.Groups {
		if who.Is(attributes.Subject{Group: true, Name: name}) {
			return true
		}
	}
	return false
}

// bindingsTimeout is how long the API server is not told of rules because nobody could answer its questions.
const bindingsTimeout = 30 * time.Second

// maxKnown bounds what is remembered; what is forgotten is learned anew.
const maxKnown = 1000

// IsExempt reports whether the rules do not apply to a user.
func (a *Admission) IsExempt(who attributes.Requester) bool { return a.exempt.has(who) }

// Bindings returns the index of who holds which role, once all bindings have been read.
func (a *Admission) Bindings(ctx context.Context) (*bindings.Index, error) {
	return a.bindings.Index(ctx)
}

// NewAdmission returns the validator. Its rules follow the informers of the cache.
func NewAdmission(
	ctx context.Context, cached cache.Cache, live client.Reader, watch *bindings.Watch, exempt Exempt,
) (*Admission, error) {
	a := &Admission{cached: cached, live: live, bindings: watch, exempt: exempt, known: map[string]bool{}}
	for _, kind := range []client.Object{&v1alpha1.ClusterProtectedAttribute{}, &v1alpha1.ProtectedAttribute{}} {
		informer, err := cached.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { a.change() },
			UpdateFunc: func(old, updated any) {
				if before, now := old.(client.Object), updated.(client.Object); before.GetUID() != now.GetUID() ||
					before.GetGeneration() != now.GetGeneration() {
					a.change()
				}
			},
			DeleteFunc: func(any) { a.change() },
		}); err != nil {
			return nil, err
		}
	}
	return a, nil
}

func (a *Admission) change() {
	a.mu.Lock()
	a.rules = nil
	a.mu.Unlock()
	a.changes.Notify()
}

// Start keeps the bindings watched as long as there are rules. It is a Runnable of every replica.
func (a *Admission) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	a.changes.Listen(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		rules, err := a.Current(ctx)
		switch {
		case err != nil:
			ctrl.LoggerFrom(ctx).Error(err, "can't read the rules on attributes")
		case rules.Empty():
			a.bindings.Stop()
		default:
			a.bindings.Start() //nolint:contextcheck // it has the operator's context
		}
	}
}

// NeedLeaderElection tells that every replica answers.
func (a *Admission) NeedLeaderElection() bool { return false }

// Current returns the rules of the cache.
func (a *Admission) Current(ctx context.Context) (*attributes.Rules, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.rules != nil {
		return a.rules, nil
	}
	rules, err := readRules(ctx, a.cached, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	a.rules = rules
	a.learn(rules.Revision())
	return rules, nil
}

// learn is called with the lock held.
func (a *Admission) learn(revision string) {
	if len(a.known) >= maxKnown {
		clear(a.known)
	}
	a.known[revision] = true
}

func readRules(ctx context.Context, from client.Reader, options ...client.ListOption) (*attributes.Rules, error) {
	cluster, namespaced := &v1alpha1.ClusterProtectedAttributeList{}, &v1alpha1.ProtectedAttributeList{}
	if err := from.List(ctx, cluster, options...); err != nil {
		return nil, fmt.Errorf("read ClusterProtectedAttributes: %w", err)
	}
	if err := from.List(ctx, namespaced, options...); err != nil {
		return nil, fmt.Errorf("read ProtectedAttributes: %w", err)
	}
	return attributes.NewRules(cluster.Items, namespaced.Items), nil
}

// At returns rules that are no older than those of a revision. If the cache is behind it, which it is for moments, they
// are read anew.
func (a *Admission) At(ctx context.Context, revision string) (*attributes.Rules, error) {
	cached, err := a.Current(ctx)
	a.mu.Lock()
	known := err == nil && (revision == "" || a.known[revision])
	a.mu.Unlock()
	if known {
		return cached, nil
	}
	live, err := readRules(ctx, a.live)
	if err != nil {
		return nil, err
	}
	if cached != nil && cached.Revision() == live.Revision() {
		a.mu.Lock()
		a.learn(revision)
		a.mu.Unlock()
	}
	return live, nil
}

// Webhooks returns what the API server is to ask about: requests that touch a protected attribute, and nothing while
// there is no rule.
func (a *Admission) Webhooks(ctx context.Context) ([]webhook.Webhook, error) {
	rules, err := a.Current(ctx)
	if err != nil || rules.Empty() {
		return nil, err
	}
	// Requests would wait for it.
	ctx, cancel := context.WithTimeout(ctx, bindingsTimeout)
	defer cancel()
	if _, err := a.bindings.Index(ctx); err != nil {
		return nil, err
	}
	operations := []admissionregistrationv1.OperationType{
		admissionregistrationv1.Create, admissionregistrationv1.Update,
	}
	if rules.GuardDeletion() {
		operations = append(operations, admissionregistrationv1.Delete)
	}
	marker := Marker(rules.Revision())
	var webhooks []webhook.Webhook
	for _, touches := range rules.Conditions(marker) {
		webhooks = append(webhooks, webhook.Webhook{
			Rules: []admissionregistrationv1.RuleWithOperations{webhook.AllObjects(operations...)},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "not-exempt", Expression: a.exempt.condition(marker)},
				webhook.NotMirrorPod(),
				webhook.NotNeededToRecover(),
				{Name: "touches-a-protected-attribute", Expression: touches},
			},
			Revision: rules.Revision(),
		})
	}
	return webhooks, nil
}

// Marker is an annotation that is refused to everybody while the API server asks about the rules of a revision.
func Marker(revision string) string {
	return v1alpha1.RulesAnnotationPrefix + revision
}

// condition spares those who are exempt the call, but for the marker.
func (e Exempt) condition(marker string) string {
	return fmt.Sprintf("!(request.userInfo.username in %s || request.userInfo.?groups.orValue([]).exists(group, group in %s)) || "+
		"object != null && %q in object.metadata.?annotations.orValue({})", celList(e.Users), celList(e.Groups), marker)
}

// list is a list of strings in CEL.
func celList(values []string) string {
	quoted := make([]string, 0, len(values))
	for _, value := range values {
		quoted = append(quoted, fmt.Sprintf("%q", value))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Validate is asked about all writes.
func (a *Admission) Validate(ctx context.Context, request *webhook.Request) error {
	if marker := Marker(request.Revision); request.Revision != "" && request.Object != nil &&
		request.Object.GetAnnotations()[marker] != "" {
		return webhook.Deny(
			fmt.Sprintf("the annotation %s is refused to everybody, by which it is seen that the rules are enforced",
				marker),
		)
	}
	who := attributes.Requester{Name: request.UserInfo.Username, Groups: request.UserInfo.Groups}
	if a.exempt.has(who) || webhook.IsMirrorPod(request) || webhook.IsNeededToRecover(request) {
		return nil
	}
	rules, err := a.At(ctx, request.Revision)
	if err != nil || rules.Empty() {
		return err
	}
	change, err := a.changeBy(ctx, request, rules)
	if err != nil {
		return err
	}
	var unread error
	violations := rules.Judge(change, func(role v1alpha1.RoleReference) bool {
		index, err := a.bindings.Index(ctx)
		if err != nil {
			unread = err
			return false
		}
		return index.Holds(who, role, change.Namespace)
	})
	if unread != nil || len(violations) == 0 {
		return unread
	}
	lines := make([]string, 0, len(violations))
	for _, violation := range violations {
		lines = append(lines,
			fmt.Sprintf("user %q may not %s: %s", who.Name, violation.Describe(nameOf(request)), violation.Remedy()))
	}
	return webhook.Deny(strings.Join(lines, "\n"))
}

// changeBy returns what a request does. An eviction deletes a pod that the request doesn't show.
func (a *Admission) changeBy(
	ctx context.Context, request *webhook.Request, rules *attributes.Rules,
) (attributes.Change, error) {
	change := attributes.Change{Namespace: request.Namespace}
	if request.Resource.Group == corev1.GroupName && request.Resource.Resource == "namespaces" {
		change.Namespace = ""
	}
	if request.SubResource == "eviction" && request.Operation == admissionv1.Create {
		if !rules.GuardDeletion() {
			return change, nil
		}
		pod := &unstructured.Unstructured{}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		err := a.live.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Name}, pod)
		if err != nil {
			if apierrors.IsNotFound(err) {
				return change, nil // nothing is evicted
			}
			return change, fmt.Errorf("read pod %s/%s that is to be evicted: %w", request.Namespace, request.Name, err)
		}
		change.Old = pod.Object
		return change, nil
	}
	if request.OldObject != nil {
		change.Old = request.OldObject.Object
	}
	if request.Object != nil {
		change.New = request.Object.Object
	}
	return change, nil
}

// nameOf is how messages call the object of a request.
func nameOf(request *webhook.Request) string {
	name := webhook.GivenName(request)
	if request.Namespace != "" && request.Kind.Kind != "Namespace" {
		name = request.Namespace + "/" + name
	}
	return request.Kind.Kind + " " + name
}

// Plugin returns the row of the chain.
func (a *Admission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "attributes", Validator: a,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.AllObjects(admissionregistrationv1.Create, admissionregistrationv1.Update,
				admissionregistrationv1.Delete),
		},
		FailurePolicy:  admissionregistrationv1.Fail, // policies go by the attributes
		TimeoutSeconds: 10,
		Webhooks:       a.Webhooks, Changes: &a.changes,
	}
}
