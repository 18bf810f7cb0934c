package constraint

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// How long a pod waits for what its namespace is given, and how often that is looked for in the cache.
const (
	allocationPatience = 5 * time.Second
	allocationLook     = 10 * time.Millisecond
)

// SCC has pods admitted by SecurityContextConstraints ("Security context constraints"), and guards what is running
// already.
type Admission struct {
	constraints *constraints
	namespaces  client.Reader
	live        client.Reader
	grants      *Grants
	options     Options
}

// newAdmission returns the plugins. Constraints and namespaces come from the cache, existing pods from the API server.
func newAdmission(
	ctx context.Context, cached cache.Cache, live client.Reader, grants *Grants, options Options,
) (*Admission, error) {
	constraints, err := newConstraints(ctx, cached)
	if err != nil {
		return nil, err
	}
	return &Admission{constraints: constraints, namespaces: cached, live: live, grants: grants, options: options}, nil
}

// Webhooks returns a function for the table: the API server asks while there is a constraint.
func (s *Admission) Webhooks(
	rules []admissionregistrationv1.RuleWithOperations,
) func(context.Context) ([]webhook.Webhook, error) {
	return func(ctx context.Context) ([]webhook.Webhook, error) {
		all, err := s.constraints.get(ctx)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		return []webhook.Webhook{{Rules: rules, Revision: webhook.OwnWebhook,
			MatchConditions: []admissionregistrationv1.MatchCondition{
				webhook.NotMirrorPod(),
				{Name: "asks-for-something-else", Expression: "request.operation != 'UPDATE' || oldObject == null || " +
					"object.?spec != oldObject.?spec || object.metadata.?labels != oldObject.metadata.?labels || " +
					"object.metadata.?annotations != oldObject.metadata.?annotations"},
			}}}, nil
	}
}

// NamespaceSelector leaves out the exempt namespaces.
func (s *Admission) NamespaceSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: s.options.ExemptNamespaces},
	}}
}

// Mutate sets what a constraint generates and a new pod or ephemeral container leaves open. It records the constraint
// on the pod, whatever the request says about that. A pod that exists is recorded anew at every update, since another
// constraint may admit it now.
func (s *Admission) Mutate(ctx context.Context, request *webhook.Request) error {
	if s.exempt(request) {
		return nil
	}
	if err := requiresAnother(request); err != nil {
		return err
	}
	pod, err := podOf(request.Object)
	if err != nil {
		return err
	}
	asked := scc.Request{Pod: pod, Mode: modeOf(request), UnknownVolumes: scc.UnknownVolumes(request.Object.Object)}
	verdict, err := s.review(ctx, request, asked)
	if err != nil || verdict == nil {
		return err
	}
	if !verdict.Allowed() {
		return webhook.Deny(s.refusal(request, verdict))
	}
	// The API server ignores what a subresource changes in the metadata.
	return write(request.Object, pod, verdict, request.SubResource == "")
}

// modeOf returns what a constraint may set. Once a pod exists, only new ephemeral containers can still be changed.
func modeOf(request *webhook.Request) scc.Mode {
	switch {
	case request.Operation == admissionv1.Create:
		return scc.MayMutate
	case request.SubResource == "ephemeralcontainers":
		return scc.MayMutateEphemeralContainers
	}
	return scc.MayNotMutate
}

// Validate denies a pod that no constraint admits as it is, whatever other webhooks changed after Mutate, and denies
// exec and attach to callers who could not have created the pod.
func (s *Admission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Revision == "" || s.exempt(request) {
		return nil // the API server called the webhook of another plugin, and may not have called Mutate
	}
	if request.Operation == admissionv1.Connect {
		return s.guard(ctx, request)
	}
	pod, err := podOf(request.Object)
	if err != nil {
		return err
	}
	if err := requiresAnother(request); err != nil {
		return err
	}
	recorded := pod.Annotations[v1alpha1.SCCAnnotation]
	asked := scc.Request{
		Pod: pod, Mode: scc.MayNotMutate, First: recorded, UnknownVolumes: scc.UnknownVolumes(request.Object.Object),
	}
	verdict, err := s.review(ctx, request, asked)
	if err != nil || verdict == nil {
		return err
	}
	if !verdict.Allowed() {
		return webhook.Deny(s.refusal(request, verdict))
	}
	if request.SubResource == "" &&
		(recorded != verdict.Constraint || pod.Annotations[v1alpha1.SCCSubjectAnnotation] != verdict.Subject) {
		return &webhook.Deferred{Message: fmt.Sprintf("pod %s/%s is admitted by SecurityContextConstraints %s, but its annotation %s is %q: constraints have just changed, repeat the request",
			request.Namespace, webhook.GivenName(request), verdict.Constraint, v1alpha1.SCCAnnotation, recorded),
			After: time.Second}
	}
	return nil
}

// requiresAnother denies an update of a pod that names another required constraint. A subresource can't change
// annotations.
func requiresAnother(request *webhook.Request) error {
	const key = v1alpha1.RequiredSCCAnnotation
	if request.OldObject == nil || request.SubResource != "" ||
		request.OldObject.GetAnnotations()[key] == request.Object.GetAnnotations()[key] {
		return nil
	}
	return webhook.Deny(fmt.Sprintf("pod %s/%s: the annotation %s can't be changed", request.Namespace, request.Name,
		key))
}

// guard judges the pod as if the caller made it, as it is.
func (s *Admission) guard(ctx context.Context, request *webhook.Request) error {
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := s.live.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: request.Name}, found)
	if apierrors.IsNotFound(err) {
		return nil // the API server says so itself
	}
	if err != nil {
		return fmt.Errorf("read pod %s/%s: %w", request.Namespace, request.Name, err)
	}
	pod, err := podOf(found)
	if err != nil {
		return err
	}
	if s.options.CallerGuardsExec {
		pod.Spec.ServiceAccountName = ""
	}
	verdict, err := s.review(ctx, request,
		scc.Request{Pod: pod, Mode: scc.MayMutate, UnknownVolumes: scc.UnknownVolumes(found.Object)})
	if err != nil || verdict == nil {
		return err
	}
	if !verdict.Allowed() {
		return webhook.Deny(fmt.Sprintf("%s is not allowed because the pod's security context exceeds your permissions: %s",
			request.SubResource, s.refusal(request, verdict)))
	}
	return nil
}

// exempt decides as the webhooks' selectors do.
func (s *Admission) exempt(request *webhook.Request) bool {
	return slices.Contains(s.options.ExemptNamespaces, request.Namespace) || webhook.IsMirrorPod(request)
}

// review completes a request with the constraints and their users, and decides it. It returns nil if there are no
// constraints. It waits for the user IDs and SELinux level of a young namespace if a constraint needs them.
func (s *Admission) review(ctx context.Context, request *webhook.Request, asked scc.Request) (*scc.Verdict, error) {
	all, err := s.constraints.orLive(ctx, s.live)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var failure error
	asked.Constraints = all
	asked.Usable = func(constraint *v1alpha1.SecurityContextConstraints) string {
		subject, err := s.grants.by(ctx, request, asked.Pod, constraint, s.options.Intersection)
		if err != nil && failure == nil {
			failure = err
		}
		return subject
	}
	var verdict scc.Verdict
	look := func(ctx context.Context) (bool, error) {
		ns := &corev1.Namespace{}
		if err := s.namespaces.Get(ctx, client.ObjectKey{Name: request.Namespace}, ns,
			client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
			return false, err
		}
		asked.NamespaceAnnotations = ns.Annotations
		verdict = scc.Review(asked)
		return verdict.Missing == nil, nil
	}
	err = wait.PollUntilContextTimeout(ctx, allocationLook, allocationPatience, true, look)
	switch {
	case failure != nil && !verdict.Allowed():
		return nil, failure
	case wait.Interrupted(err):
		return &verdict, nil // what is missing is among the reasons
	}
	return &verdict, err
}

// refusal says, in the order in which they were tried, what each constraint does not allow.
func (s *Admission) refusal(request *webhook.Request, verdict *scc.Verdict) string {
	lines := []string{fmt.Sprintf("pod %s/%s: no SecurityContextConstraints admit it for user %q or its service account:",
		request.Namespace, webhook.GivenName(request), request.UserInfo.Username)}
	for _, reason := range verdict.Reasons {
		lines = append(lines, "- "+reason.String())
	}
	return strings.Join(lines, "\n")
}

func podOf(object *unstructured.Unstructured) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		return nil, fmt.Errorf("read the pod: %w", err)
	}
	return pod, nil
}

// Plugins returns the rows of the chain.
func (s *Admission) Plugins() (mutating, validating webhook.Plugin) {
	pods := func(
		operation admissionregistrationv1.OperationType, resources ...string,
	) admissionregistrationv1.RuleWithOperations {
		return webhook.Rule("", "v1", admissionregistrationv1.NamespacedScope, resources, operation)
	}
	written := []admissionregistrationv1.RuleWithOperations{
		pods(admissionregistrationv1.Create, "pods"),
		pods(admissionregistrationv1.Update, "pods", "pods/ephemeralcontainers", "pods/resize"),
	}
	judged := append(slices.Clone(written), pods(admissionregistrationv1.Connect, "pods/exec", "pods/attach"))
	plugin := func(rules []admissionregistrationv1.RuleWithOperations) webhook.Plugin {
		return webhook.Plugin{
			Name: "scc", Rules: rules, NamespaceSelector: s.NamespaceSelector(),
			FailurePolicy:  admissionregistrationv1.Fail, // a pod could be root
			TimeoutSeconds: 15,
			Webhooks:       s.Webhooks(rules), Changes: &s.constraints.changes,
		}
	}
	mutating, validating = plugin(written), plugin(judged)
	mutating.Mutator, validating.Validator = s, s
	return mutating, validating
}
