package constraint

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// mutationReview returns the input of scc.Review for Mutate.
func mutationReview(request *webhook.Request, pod *corev1.Pod) scc.Request {
	return scc.Request{
		Pod: pod, Mode: modeOf(request), Unknown: scc.UnknownFieldsOf(request.Object.Object),
	}
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

// validationReview returns the input of scc.Review for Validate: the constraint that Mutate recorded comes first, and
// none may change the pod any more.
func validationReview(request *webhook.Request, pod *corev1.Pod) scc.Request {
	return scc.Request{
		Pod: pod, Mode: scc.MayNotMutate, First: pod.Annotations[v1alpha1.SCCAnnotation],
		Unknown: scc.UnknownFieldsOf(request.Object.Object),
	}
}

// connectReview returns the input of scc.Review for exec and attach: the stored pod, as if the user created it. With
// CallerGuardsExec, the rights of the pod's service account do not count.
func (f Flags) connectReview(pod *corev1.Pod, stored *unstructured.Unstructured) scc.Request {
	if f.CallerGuardsExec {
		pod = pod.DeepCopy()
		pod.Spec.ServiceAccountName = ""
	}
	return scc.Request{Pod: pod, Mode: scc.MayMutate, Unknown: scc.UnknownFieldsOf(stored.Object)}
}

// decide returns nil if the verdict allows a pod and names the constraint that is recorded on the pod. Constraints or
// rights that changed between Mutate and Validate are a reason to repeat the request. So is the end of the
// initialization of the namespace: Mutate leaves a pod as it is that no constraint allows before.
func decide(request *webhook.Request, pod *corev1.Pod, verdict *scc.Verdict, isInitializing bool) error {
	recorded := pod.Annotations[v1alpha1.SCCAnnotation]
	switch isUnchanged := request.Operation == admissionv1.Create && recorded == ""; {
	case !verdict.Allowed() && isUnchanged && !isInitializing:
		return webhook.Defer(codes.ConstraintChanged, fmt.Sprintf("%s\nRepeat the request: no constraint is recorded on the "+
			"pod, so its namespace has just been initialized, constraints have just changed, or a webhook removed the "+
			"annotation %s", denial(request, verdict), v1alpha1.SCCAnnotation), webhook.RetryAfter)
	case !verdict.Allowed():
		return webhook.Deny(codes.ConstraintDenied, denial(request, verdict))
	}
	if request.SubResource != "" ||
		recorded == verdict.Constraint && pod.Annotations[v1alpha1.SCCSubjectAnnotation] == verdict.Subject {
		return nil
	}
	return webhook.Defer(codes.ConstraintChanged, fmt.Sprintf("pod %s/%s is allowed by SecurityContextConstraints %s, "+
		"but its annotation %s is %q: constraints or rights have just changed, repeat the request",
		request.Namespace, webhook.GivenName(request), verdict.Constraint, v1alpha1.SCCAnnotation, recorded),
		webhook.RetryAfter)
}

// decideConnect returns nil if the verdict allows the pod.
func (f Flags) decideConnect(request *webhook.Request, verdict *scc.Verdict) error {
	if verdict.Allowed() {
		return nil
	}
	subjects := userOrAccount
	if f.CallerGuardsExec {
		subjects = "user %q"
	}
	return webhook.Deny(codes.ConstraintDenied,
		fmt.Sprintf("%s is not allowed because the pod's security context exceeds your permissions: %s",
			request.SubResource, denialFor(subjects, request, verdict)))
}

// denyOtherRequirement denies an update that changes which constraint a pod requires. A request to a subresource cannot
// change annotations.
func denyOtherRequirement(request *webhook.Request) error {
	const key = v1alpha1.RequiredSCCAnnotation
	if request.OldObject == nil || request.SubResource != "" ||
		request.OldObject.GetAnnotations()[key] == request.Object.GetAnnotations()[key] {
		return nil
	}
	return webhook.Deny(codes.ConstraintRequired,
		fmt.Sprintf("pod %s/%s: the annotation %s can't be changed: delete the pod and create it with another value",
			request.Namespace, request.Name, key))
}

// userOrAccount is the format of the subjects whose rights count for a pod.
const userOrAccount = "user %q or its service account"

// denial returns a message with the reasons of all constraints, in the order in which scc.Review tried them.
func denial(request *webhook.Request, verdict *scc.Verdict) string {
	return denialFor(userOrAccount, request, verdict)
}

// denialFor is like denial, for the subjects in a format that contains the name of the user.
func denialFor(subjects string, request *webhook.Request, verdict *scc.Verdict) string {
	lines := []string{fmt.Sprintf("pod %s/%s: no SecurityContextConstraints admit it for "+subjects+":",
		request.Namespace, webhook.GivenName(request), request.UserInfo.Username)}
	for _, reason := range verdict.Reasons {
		lines = append(lines, "- "+reason.String())
	}
	return strings.Join(lines, "\n")
}

func podOf(object *unstructured.Unstructured) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		return nil, fmt.Errorf("decode the pod: %w", err)
	}
	return pod, nil
}
