package constraint

import (
	"context"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// allocationTimeout is how long the request for a pod waits for the UID range and SELinux level of the pod's namespace,
// and for the user ID of its service account. allocationBackoff is how often it reads the namespace from the cache, and
// the service account from the API server.
const allocationTimeout = 5 * time.Second

var allocationBackoff = wait.Backoff{
	Duration: 10 * time.Millisecond, Factor: 1.3, Cap: 300 * time.Millisecond, Steps: 20,
}

// pluginName is the name of both plugins. The names of their webhooks begin with it.
const pluginName = "scc"

// Admission is the mutator and validator of pods, and the guard of exec and attach.
type Admission struct {
	constraints *constraintCache
	namespaces  client.Reader
	live        client.Reader
	grants      *Grants
	flags       Flags
}

// newAdmission returns the plugins. Constraints and namespaces come from the cache, existing pods from the API server.
func newAdmission(ctx context.Context, mgr ctrl.Manager, grants *Grants, flags Flags) (*Admission, error) {
	constraints, err := newConstraintCache(ctx, mgr.GetCache(), mgr.GetAPIReader())
	if err != nil {
		return nil, err
	}
	return &Admission{
		constraints: constraints, namespaces: mgr.GetCache(), live: mgr.GetAPIReader(), grants: grants, flags: flags,
	}, nil
}

// plugins returns the rows of the chain.
func (a *Admission) plugins() (mutating, validating webhook.Plugin) {
	pods := func(
		operation admissionregistrationv1.OperationType, resources ...string,
	) admissionregistrationv1.RuleWithOperations {
		return webhook.Rule("", "v1", admissionregistrationv1.NamespacedScope, resources, operation)
	}
	writes := []admissionregistrationv1.RuleWithOperations{
		pods(admissionregistrationv1.Create, "pods"),
		pods(admissionregistrationv1.Update, "pods", "pods/ephemeralcontainers", "pods/resize"),
	}
	all := append(slices.Clone(writes), pods(admissionregistrationv1.Connect, "pods/exec", "pods/attach"))
	plugin := func(rules []admissionregistrationv1.RuleWithOperations) webhook.Plugin {
		return webhook.Plugin{
			Name: pluginName, Rules: rules, NamespaceSelector: a.namespaceSelector(),
			FailurePolicy:  admissionregistrationv1.Fail, // the pod could run as root
			TimeoutSeconds: 15,
			Webhooks:       a.webhooks(rules), Changes: &a.constraints.Changes,
		}
	}
	mutating, validating = plugin(writes), plugin(all)
	mutating.Mutator, validating.Validator = a, a
	mutating.Label = v1alpha1.ConstraintsLabel
	validating.Configuration = v1alpha1.ConstraintWebhookName
	return mutating, validating
}

// webhooks returns the function Webhooks of a plugin with rules. While there are no constraints, it has no webhook.
func (a *Admission) webhooks(
	rules []admissionregistrationv1.RuleWithOperations,
) func(context.Context) ([]webhook.Webhook, error) {
	return func(ctx context.Context) ([]webhook.Webhook, error) {
		all, err := a.constraints.Cached(ctx)
		if err != nil || len(all.sorted) == 0 {
			return nil, err
		}
		a.constraints.Remember(all)
		return []webhook.Webhook{{Rules: rules, Revision: all.Revision(),
			MatchConditions: webhook.Every("changes-the-pod",
				"request.operation != 'UPDATE' || oldObject == null || object.?spec != oldObject.?spec || "+
					"object.metadata.?labels != oldObject.metadata.?labels || "+
					"object.metadata.?annotations != oldObject.metadata.?annotations",
				webhook.NotMirrorPod()),
		}}, nil
	}
}

// namespaceSelector excludes the exempt namespaces.
func (a *Admission) namespaceSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: a.flags.ExemptNamespaces},
	}}
}

// isExempt reports whether constraints do not apply to a request. It decides as the selectors of the webhooks do.
func (f Flags) isExempt(request *webhook.Request) bool {
	return slices.Contains(f.ExemptNamespaces, request.Namespace) || webhook.IsMirrorPod(request)
}

// Mutate sets the fields that a constraint generates and that a new pod or a new ephemeral container leaves open. It
// records the constraint on the pod and overwrites what the request sets there. An update of a pod records the
// constraint again, because another one may allow the pod now.
func (a *Admission) Mutate(ctx context.Context, request *webhook.Request) error {
	if a.flags.isExempt(request) {
		return nil
	}
	if err := denyOtherRequirement(request); err != nil {
		return err
	}
	pod, err := podOf(request.Object)
	if err != nil {
		return err
	}
	_, isInitializing, err := a.namespaceOf(ctx, request)
	if err != nil {
		return err
	}
	verdict, err := a.review(ctx, request, pod, mutationReview(request, pod))
	switch {
	case err != nil || verdict == nil:
		return err
	case !verdict.Allowed() && isInitializing:
		return nil // Hold decides, and then Validate
	case !verdict.Allowed():
		return webhook.Deny(codes.ConstraintDenied, denial(request, verdict))
	}
	// The API server ignores metadata that a request to a subresource changes.
	return patchPod(request.Object, pod, verdict, request.SubResource == "")
}

// namespaceOf returns the namespace of a request in the cache, and whether it is being initialized or not in the cache
// yet. Rights may be missing in it that a RoleBinding of a template gives. The API server creates no pod in a namespace
// that is being deleted. So if the cache has such a namespace, it lacks a new one of the same name.
func (a *Admission) namespaceOf(
	ctx context.Context, request *webhook.Request,
) (ns *corev1.Namespace, isInitializing bool, err error) {
	ns = &corev1.Namespace{}
	err = a.namespaces.Get(ctx, client.ObjectKey{Name: request.Namespace}, ns, client.UnsafeDisableDeepCopy)
	isLate := ns.DeletionTimestamp != nil && request.Operation == admissionv1.Create
	if apierrors.IsNotFound(err) || isLate {
		return &corev1.Namespace{}, true, nil
	}
	return ns, initialize.Initializing(ns), err
}

// Validate denies a pod that no constraint allows as it is after other webhooks have changed it. It denies exec and
// attach to users who could not have created the pod.
func (a *Admission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Revision == "" || a.flags.isExempt(request) {
		// Without a revision, another plugin's webhook caused the request, and the API server may not have called
		// Mutate.
		return nil
	}
	if request.Operation == admissionv1.Connect {
		return a.validateConnect(ctx, request)
	}
	pod, err := podOf(request.Object)
	if err != nil {
		return err
	}
	if err := denyOtherRequirement(request); err != nil {
		return err
	}
	verdict, err := a.review(ctx, request, pod, validationReview(request, pod))
	if err != nil || verdict == nil {
		return err
	}
	_, isInitializing, err := a.namespaceOf(ctx, request)
	if err != nil {
		return err
	}
	return decide(request, pod, verdict, isInitializing)
}

// validateConnect decides whether a user may exec into a pod or attach to it.
func (a *Admission) validateConnect(ctx context.Context, request *webhook.Request) error {
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := a.live.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Name}, stored)
	if apierrors.IsNotFound(err) {
		return nil // the API server answers that the pod does not exist
	}
	if err != nil {
		return fmt.Errorf("get pod %s/%s: %w", request.Namespace, request.Name, err)
	}
	pod, err := podOf(stored)
	if err != nil {
		return err
	}
	verdict, err := a.review(ctx, request, pod, a.flags.connectReview(pod, stored))
	if err != nil || verdict == nil {
		return err
	}
	return a.flags.decideConnect(request, verdict)
}

// review completes a scc.Request with the constraints, their users and the annotations of the namespace and the service
// account of a pod, and decides it. It returns nil if there are no constraints. If a constraint needs what Allocations
// or AccountIDs has not set yet, review waits for it, unless it is known that they cannot set it.
func (a *Admission) review(
	ctx context.Context, request *webhook.Request, pod *corev1.Pod, input scc.Request,
) (*scc.Verdict, error) {
	all, err := a.constraints.at(ctx, request.Revision)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var failure error
	input.Constraints = all
	input.Intersection = a.flags.Intersection
	isInitializing := false
	answers := map[[2]string]bool{} // those of a namespace that is being initialized, which Grants does not remember
	input.Usable = func(constraint *v1alpha1.SecurityContextConstraints, subject string) bool {
		key := [2]string{constraint.Name, subject}
		if allowed, isKnown := answers[key]; isKnown {
			return allowed
		}
		allowed, err := a.grants.mayUseFor(ctx, request, &input, constraint, subject, !isInitializing)
		switch {
		case err == nil && isInitializing:
			answers[key] = allowed
		case err != nil && failure == nil:
			failure = err
		}
		return allowed
	}
	var unread error
	input.AccountAnnotations = func() (map[string]string, error) {
		annotations, err := a.accountAnnotations(ctx, request.Namespace, pod.Spec.ServiceAccountName)
		if client.IgnoreNotFound(err) != nil {
			unread = err
		}
		return annotations, err
	}
	var verdict scc.Verdict
	attempt := func(ctx context.Context) (bool, error) {
		ns, initializing, err := a.namespaceOf(ctx, request)
		if err != nil {
			return false, err
		}
		input.NamespaceAnnotations, isInitializing = ns.Annotations, initializing
		verdict = scc.Review(input)
		return verdict.Missing == nil || verdict.Missing.Why != nil, unread
	}
	waiting, end := context.WithTimeout(ctx, allocationTimeout)
	defer end()
	err = allocationBackoff.DelayFunc().Until(waiting, true, true, attempt)
	switch {
	case failure != nil && !verdict.Allowed():
		return nil, failure
	case wait.Interrupted(err):
		return &verdict, nil // the reasons of the verdict include the missing annotation
	}
	return &verdict, err
}

// accountAnnotations returns the annotations of a service account. They come from the API server: the cache may still
// have a deleted account, whose user ID a new one of the same name must not have.
func (a *Admission) accountAnnotations(ctx context.Context, namespace, name string) (map[string]string, error) {
	account := ServiceAccount()
	if err := a.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, account); err != nil {
		return nil, fmt.Errorf("get service account %s/%s: %w", namespace, name, err)
	}
	return account.Annotations, nil
}
