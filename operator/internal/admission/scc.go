package admission

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
	"nstpl.dev/nstpl/operator/scc"
)

// ownWebhook is the revision by which the plugin knows its own webhook.
const ownWebhook = "own"

// How long a pod waits for what its namespace is given, and how often that is looked for in the cache.
const (
	allocationPatience = 5 * time.Second
	allocationLook     = 10 * time.Millisecond
)

// SCC has pods admitted by SecurityContextConstraints ("Security context constraints"), and guards what is running already.
type SCC struct {
	constraints *constraints
	namespaces  client.Reader
	live        client.Reader
	grants      *SCCGrants
	options     SCCOptions
}

// SCCOptions say where constraints apply, and how strictly.
type SCCOptions struct {
	// ExemptNamespaces are those whose pods are not looked at.
	ExemptNamespaces []string
	// Intersection makes a constraint usable only if it is open to the requester and the service account both.
	Intersection bool
	// CallerGuardsExec has exec and attach judge the caller alone, without the pod's service account.
	CallerGuardsExec bool
}

// NewSCC returns the plugin. Constraints and namespaces come from the cache, pods that are there from the API server.
func NewSCC(ctx context.Context, cached cache.Cache, live client.Reader, grants *SCCGrants, options SCCOptions) (*SCC, error) {
	constraints, err := newConstraints(ctx, cached)
	if err != nil {
		return nil, err
	}
	return &SCC{constraints: constraints, namespaces: cached, live: live, grants: grants, options: options}, nil
}

// Needed tells whether there are constraints.
func (s *SCC) Needed(ctx context.Context) (bool, error) {
	all, err := s.constraints.get(ctx)
	return len(all) > 0, err
}

// OnChange has do called now and whenever there may be a first constraint or none any more.
func (s *SCC) OnChange(do func()) { s.constraints.subscribers.add(do) }

// Webhooks returns a function for the table: the API server asks while there is a constraint.
func (s *SCC) Webhooks(rules []admissionregistrationv1.RuleWithOperations) func(context.Context) ([]Webhook, error) {
	return func(ctx context.Context) ([]Webhook, error) {
		all, err := s.constraints.get(ctx)
		if err != nil || len(all) == 0 {
			return nil, err
		}
		return []Webhook{{Rules: rules, Revision: ownWebhook, MatchConditions: []admissionregistrationv1.MatchCondition{
			notAMirrorPod(),
			{Name: "asks-for-something-else", Expression: "request.operation != 'UPDATE' || oldObject == null || " +
				"object.?spec != oldObject.?spec || object.metadata.?labels != oldObject.metadata.?labels || " +
				"object.metadata.?annotations != oldObject.metadata.?annotations"},
		}}}, nil
	}
}

// NamespaceSelector leaves out the exempt namespaces.
func (s *SCC) NamespaceSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: s.options.ExemptNamespaces},
	}}
}

// Mutate has a constraint set what a pod leaves open, and writes its name on the pod.
func (s *SCC) Mutate(ctx context.Context, request *Request) error {
	if s.exempt(request) {
		return nil
	}
	pod, err := podOf(request.Object)
	if err != nil {
		return err
	}
	mode := scc.MayMutate
	if request.Operation == admissionv1.Update {
		mode = scc.MayMutateEphemeralContainers
	}
	verdict, err := s.review(ctx, request, pod, scc.UnknownVolumes(request.Object.Object), mode)
	if err != nil || verdict == nil {
		return err
	}
	if !verdict.Allowed() {
		return &Refused{s.refusal(request, verdict)}
	}
	return write(request.Object, pod, verdict, request.Operation == admissionv1.Create)
}

// Validate sees to it that a pod is one that some constraint admits as it is, whatever was done to it since it was mutated, and
// that nobody enters a pod that they could not have made.
func (s *SCC) Validate(ctx context.Context, request *Request) error {
	if request.Revision == "" || s.exempt(request) {
		return nil // who asks by another's webhook may not have asked for the mutation
	}
	if request.Operation == admissionv1.Connect {
		return s.guard(ctx, request)
	}
	pod, err := podOf(request.Object)
	if err != nil {
		return err
	}
	if request.OldObject != nil && request.SubResource == "" {
		for _, key := range []string{v1alpha1.RequiredSCCAnnotation, v1alpha1.SCCAnnotation, v1alpha1.SCCSubjectAnnotation} {
			before, there := request.OldObject.GetAnnotations()[key]
			after, still := pod.Annotations[key]
			if before != after || there != still && key != v1alpha1.RequiredSCCAnnotation {
				return &Refused{fmt.Sprintf("pod %s/%s: the annotation %s can't be changed", request.Namespace, pod.Name, key)}
			}
		}
	}
	verdict, err := s.review(ctx, request, pod, scc.UnknownVolumes(request.Object.Object), scc.MayNotMutate)
	if err != nil || verdict == nil {
		return err
	}
	if !verdict.Allowed() {
		return &Refused{s.refusal(request, verdict)}
	}
	if required := pod.Annotations[v1alpha1.RequiredSCCAnnotation]; required != "" && request.OldObject == nil && pod.Annotations[v1alpha1.SCCAnnotation] != required {
		return &Refused{fmt.Sprintf("pod %s/%s requires SecurityContextConstraints %s and was admitted by %q", request.Namespace, givenName(request), required, pod.Annotations[v1alpha1.SCCAnnotation])}
	}
	return nil
}

// guard judges the pod as if the caller made it, as it is.
func (s *SCC) guard(ctx context.Context, request *Request) error {
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
	verdict, err := s.review(ctx, request, pod, scc.UnknownVolumes(found.Object), scc.MayMutate)
	if err != nil || verdict == nil {
		return err
	}
	if !verdict.Allowed() {
		return &Refused{fmt.Sprintf("%s is not allowed because the pod's security context exceeds your permissions: %s",
			request.SubResource, s.refusal(request, verdict))}
	}
	return nil
}

// exempt decides as the webhooks' selectors do.
func (s *SCC) exempt(request *Request) bool {
	return slices.Contains(s.options.ExemptNamespaces, request.Namespace) || ofAMirrorPod(request)
}

// review returns nil if no constraint says anything about the pod. It waits for what the namespace is to be given, if a constraint needs it.
func (s *SCC) review(ctx context.Context, request *Request, pod *corev1.Pod, unknown []string, mode scc.Mode) (*scc.Verdict, error) {
	all, err := s.constraints.orLive(ctx, s.live)
	if err != nil || len(all) == 0 || scc.Exempt(pod) {
		return nil, err
	}
	var failure error
	asked := scc.Request{Pod: pod, UnknownVolumes: unknown, Mode: mode, Constraints: all, Usable: func(constraint *v1alpha1.SecurityContextConstraints) string {
		subject, err := s.grants.by(ctx, request, pod, constraint, s.options.Intersection)
		if err != nil && failure == nil {
			failure = err
		}
		return subject
	}}
	var verdict scc.Verdict
	look := func(ctx context.Context) (bool, error) {
		ns := &corev1.Namespace{}
		if err := s.namespaces.Get(ctx, client.ObjectKey{Name: request.Namespace}, ns, client.UnsafeDisableDeepCopy); client.IgnoreNotFound(err) != nil {
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
func (s *SCC) refusal(request *Request, verdict *scc.Verdict) string {
	lines := []string{fmt.Sprintf("pod %s/%s: no SecurityContextConstraints admit it for user %q or its service account:",
		request.Namespace, givenName(request), request.UserInfo.Username)}
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
