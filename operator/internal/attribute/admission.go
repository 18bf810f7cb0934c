package attribute

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/bindings"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Admission is the validator of writes that change protected labels and annotations. Every replica runs it, with its
// own cache of rules and bindings.
type Admission struct {
	rules    *RuleCache
	live     client.Reader
	bindings *bindings.Watch
	exempt   Exempt
}

// bindingsTimeout is how long Webhooks waits for the bindings. Without them, the operator could not decide about the
// requests that the API server would send.
const bindingsTimeout = 30 * time.Second

// Sources are where the validator reads rules and bindings.
type Sources struct {
	// Cache has the informers that the rules follow.
	Cache cache.Cache
	// Live reads from the API server.
	Live     client.Reader
	Bindings *bindings.Watch
}

// NewAdmission returns the validator, which allows every change of exempt users and groups.
func NewAdmission(ctx context.Context, sources Sources, exempt Exempt) (*Admission, error) {
	rules, err := newRuleCache(ctx, sources.Cache, sources.Live)
	if err != nil {
		return nil, err
	}
	return &Admission{rules: rules, live: sources.Live, bindings: sources.Bindings, exempt: exempt}, nil
}

// Plugin returns the row of the chain.
func (a *Admission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "attributes", Validator: a,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.AllObjects(admissionregistrationv1.Create, admissionregistrationv1.Update,
				admissionregistrationv1.Delete),
		},
		FailurePolicy:  admissionregistrationv1.Fail, // other policies select objects by these attributes
		TimeoutSeconds: 10,
		Configuration:  v1alpha1.AttributeWebhookName,
		Webhooks:       a.Webhooks, Changes: &a.rules.Changes,
	}
}

// Rules returns the rules of the cache.
func (a *Admission) Rules(ctx context.Context) (*attributes.Rules, error) { return a.rules.Cached(ctx) }

// RulesOfCluster returns the rules of the cluster as the API server has them. A decision that holds for good needs
// them: the cache may be late.
func (a *Admission) RulesOfCluster(ctx context.Context) (*attributes.Rules, error) {
	cluster, err := a.rules.ofCluster(ctx)
	return attributes.NewRules(cluster, nil), err
}

// Protects reports whether a ClusterProtectedAttribute in the cache protects an attribute of Namespaces. Users then
// change it only with a role that a rule names: values that no rule lists are denied to all of them.
func (a *Admission) Protects(ctx context.Context, attribute attributes.Attribute) (bool, error) {
	return a.rules.protects(ctx, attribute)
}

// Listen calls a function now and after every change of the rules.
func (a *Admission) Listen(listener func()) { a.rules.Changes.Listen(listener) }

// IsExempt reports whether the rules do not apply to a user.
func (a *Admission) IsExempt(who attributes.Requester) bool { return a.exempt.includes(who) }

// Bindings returns the index of role holders after all bindings have been read.
func (a *Admission) Bindings(ctx context.Context) (*bindings.Index, error) {
	return a.bindings.Index(ctx)
}

// Start watches the bindings while there are rules. It implements manager.Runnable.
func (a *Admission) Start(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	a.rules.Changes.Listen(func() {
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
		rules, err := a.rules.Cached(ctx)
		switch {
		case err != nil:
			ctrl.LoggerFrom(ctx).Error(err, "cannot read the rules about protected attributes")
		case rules.Empty():
			a.bindings.Stop()
		default:
			a.bindings.Start() //nolint:contextcheck // it has the operator's context
		}
	}
}

// NeedLeaderElection returns false: every replica answers requests.
func (a *Admission) NeedLeaderElection() bool { return false }

// Webhooks returns webhooks for the requests that change a protected attribute, and none if there are no rules.
func (a *Admission) Webhooks(ctx context.Context) ([]webhook.Webhook, error) {
	rules, err := a.rules.Cached(ctx)
	if err != nil || rules.Empty() {
		return nil, err
	}
	// Once the API server sends requests, they wait for the bindings. So read the bindings first.
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
	a.rules.Remember(rules)
	marker := Marker(rules.Revision())
	var webhooks []webhook.Webhook
	for _, changes := range rules.Conditions(marker) {
		webhooks = append(webhooks, webhook.Webhook{
			Rules: []admissionregistrationv1.RuleWithOperations{webhook.AllObjects(operations...)},
			MatchConditions: webhook.Every("changes-a-protected-attribute",
				a.exempt.condition(marker), webhook.NotMirrorPod(), webhook.NotNeededToRecover(), changes),
			Revision: rules.Revision(),
		})
	}
	return webhooks, nil
}

// Marker returns an annotation that Validate denies to every user while the API server enforces the rules of a
// revision.
func Marker(revision string) string {
	return v1alpha1.RulesAnnotationPrefix + revision
}

// Validate decides about a write.
func (a *Admission) Validate(ctx context.Context, request *webhook.Request) error {
	if err := denyMarker(request); err != nil {
		return err
	}
	if a.exempt.includes(requesterOf(request)) || webhook.IsMirrorPod(request) || webhook.IsNeededToRecover(request) {
		return nil
	}
	rules, err := a.rules.At(ctx, request.Revision)
	if err != nil || rules.Empty() {
		return err
	}
	var pod *unstructured.Unstructured
	if isEviction(request) && rules.GuardDeletion() || isBinding(request) {
		if pod, err = a.podOf(ctx, request); err != nil {
			return err
		}
	}
	// Most requests change no protected attribute, and then nothing has to wait for the bindings.
	var unread error
	denial := decide(request, pod, rules,
		func(who attributes.Requester, role v1alpha1.RoleReference, namespace string) bool {
			index, err := a.bindings.Index(ctx)
			if err != nil {
				unread = err
				return false
			}
			return index.Holds(who, role, namespace)
		})
	if unread != nil {
		return unread
	}
	return denial
}

// denyMarker denies a request that sets the marker of the revision by which the API server sent it. Only Enforcement
// sends such a request: the denial proves that the API server enforces the rules.
func denyMarker(request *webhook.Request) error {
	marker := Marker(request.Revision)
	if request.Revision == "" || request.Object == nil || request.Object.GetAnnotations()[marker] == "" {
		return nil
	}
	return webhook.Deny(codes.InternalCheck, fmt.Sprintf(
		"annotation %s is reserved for the operator's check that the rules about protected attributes are enforced: "+
			"remove it from the request", marker))
}

// decide denies a request by which the requester changes a protected attribute without a role for it. pod is the pod
// that an eviction deletes or a Binding binds, or nil.
func decide(
	request *webhook.Request, pod *unstructured.Unstructured, rules *attributes.Rules,
	holds func(who attributes.Requester, role v1alpha1.RoleReference, namespace string) bool,
) error {
	who, change := requesterOf(request), changeOf(request, pod)
	violations := rules.Judge(change, func(role v1alpha1.RoleReference) bool {
		return holds(who, role, change.Namespace)
	})
	if len(violations) == 0 {
		return nil
	}
	lines := make([]string, 0, len(violations))
	for _, violation := range violations {
		lines = append(lines,
			fmt.Sprintf("user %q may not %s: %s", who.Name, violation.Describe(nameOf(request)), violation.Remedy()))
	}
	return webhook.Deny(codes.AttributeProtected, strings.Join(lines, "\n"))
}

func requesterOf(request *webhook.Request) attributes.Requester {
	return attributes.Requester{Name: request.UserInfo.Username, Groups: request.UserInfo.Groups}
}

func isEviction(request *webhook.Request) bool {
	return request.SubResource == "eviction" && request.Operation == admissionv1.Create
}

// isBinding reports whether a request binds a pod to a node.
func isBinding(request *webhook.Request) bool {
	return request.Kind.Group == corev1.GroupName && request.Kind.Kind == "Binding"
}

// changeOf returns the change that a request makes. The object of an eviction is not the pod that it deletes, and the
// labels and annotations of a Binding replace those of the pod. The pod may be nil.
func changeOf(request *webhook.Request, pod *unstructured.Unstructured) attributes.Change {
	change := attributes.Change{Namespace: request.Namespace}
	if request.Resource.Group == corev1.GroupName && request.Resource.Resource == "namespaces" {
		change.Namespace = ""
	}
	if isEviction(request) {
		if pod != nil {
			change.Old = pod.Object
		}
		return change
	}
	if isBinding(request) && pod != nil {
		change.Old = replacedBy(request.Object, pod)
	}
	if request.OldObject != nil {
		change.Old = request.OldObject.Object
	}
	if request.Object != nil {
		change.New = request.Object.Object
	}
	return change
}

// replacedBy returns an object with the labels and annotations of a pod that a Binding replaces.
func replacedBy(binding, pod *unstructured.Unstructured) map[string]any {
	replaced := func(old, updated map[string]string) map[string]string {
		old = maps.Clone(old)
		maps.DeleteFunc(old, func(key, _ string) bool { _, isReplaced := updated[key]; return !isReplaced })
		return old
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetLabels(replaced(pod.GetLabels(), binding.GetLabels()))
	object.SetAnnotations(replaced(pod.GetAnnotations(), binding.GetAnnotations()))
	return object.Object
}

// podOf returns the pod that an eviction deletes or a Binding binds, or nil if it does not exist.
func (a *Admission) podOf(ctx context.Context, request *webhook.Request) (*unstructured.Unstructured, error) {
	pod := &unstructured.Unstructured{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := a.live.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: webhook.GivenName(request)}, pod)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get the pod %s/%s: %w", request.Namespace, webhook.GivenName(request), err)
	}
	return pod, nil
}

// nameOf returns the name of the request's object in messages.
func nameOf(request *webhook.Request) string {
	kind, name := request.Kind.Kind, webhook.GivenName(request)
	if isEviction(request) {
		kind = "Pod"
	}
	if request.Namespace != "" && kind != "Namespace" {
		name = request.Namespace + "/" + name
	}
	return kind + " " + name
}
