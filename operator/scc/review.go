package scc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Mode is what a constraint may change in a pod.
type Mode int

// The modes: everything in a new pod, only its ephemeral containers, or nothing.
const (
	MayMutate Mode = iota
	MayMutateEphemeralContainers
	MayNotMutate
)

// The subjects whose permission allows the use of a constraint.
const (
	ServiceAccountSubject = "serviceaccount"
	UserSubject           = "user"
)

// Request is a pod to review.
type Request struct {
	Pod  *corev1.Pod
	Mode Mode
	// NamespaceAnnotations are the annotations of the pod's namespace.
	NamespaceAnnotations map[string]string
	// AccountAnnotations returns the annotations of the pod's service account. Review calls it for constraints with
	// MustRunAsServiceAccount only. If it is nil, the service account has none.
	AccountAnnotations func() (map[string]string, error)
	// Constraints are all constraints of the cluster, Defaulted and sorted by Sort.
	Constraints []*v1alpha1.SecurityContextConstraints
	// First is the name of the constraint that is tried before all others, or empty.
	First string
	// Unknown are the fields of the pod that Pod does not have.
	Unknown UnknownFields
	// Usable reports whether ServiceAccountSubject or UserSubject may use a constraint. Review calls it for one
	// constraint after the other, until one admits the pod, and for ServiceAccountSubject only if the pod has one.
	Usable func(constraint *v1alpha1.SecurityContextConstraints, subject string) bool
	// Intersection requires that both subjects may use a constraint. Otherwise one of them suffices.
	Intersection bool
}

// Reason is why a constraint does not admit a pod.
type Reason struct {
	Constraint string `json:"constraint"`
	Field      string `json:"field"`
	Message    string `json:"message"`
}

func (r Reason) String() string {
	text := "constraint"
	if r.Constraint != "" {
		text += " " + r.Constraint
	}
	if r.Field != "" {
		text += ": " + r.Field
	}
	return text + ": " + r.Message
}

// Verdict is the result of a review: the constraint that admits the pod, and the pod with the values that the
// constraint sets. If no constraint admits the pod, Constraint is empty.
type Verdict struct {
	Constraint string
	Subject    string
	Pod        *corev1.Pod
	// Reasons are why the constraints before the one that admits the pod, or all of them, do not.
	Reasons []Reason
	// Missing is the annotation that the namespace or the service account does not have yet, and without which it is
	// not known whether a preferred constraint admits the pod.
	Missing *Missing
}

// Allowed reports whether a constraint admits the pod.
func (v Verdict) Allowed() bool { return v.Constraint != "" }

// Review tries the constraints in order. The first that admits the pod wins, and the others do not change the pod. A
// constraint that cannot be evaluated is skipped. If it only waits for an annotation of the namespace or the service
// account, no later constraint is used: otherwise the constraint of a pod would depend on how early the pod is created.
func Review(request Request) Verdict {
	verdict := Verdict{}
	candidates := request.Constraints
	if required := request.Pod.Annotations[v1alpha1.RequiredSCCAnnotation]; required != "" {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(c *v1alpha1.SecurityContextConstraints) bool {
			return c.Name != required
		})
		if len(candidates) == 0 {
			verdict.Reasons = []Reason{{Constraint: required,
				Field:   "metadata.annotations[" + v1alpha1.RequiredSCCAnnotation + "]",
				Message: "SecurityContextConstraints of this name do not exist"}}
			return verdict
		}
	}
	if first := slices.IndexFunc(candidates, func(c *v1alpha1.SecurityContextConstraints) bool {
		return c.Name == request.First
	}); first > 0 {
		candidates = slices.Concat(candidates[first:first+1], candidates[:first], candidates[first+1:])
	}
	for _, constraint := range candidates {
		subject, denial := request.subject(constraint)
		if denial != "" {
			verdict.Reasons = append(verdict.Reasons, Reason{Constraint: constraint.Name, Message: denial})
			continue
		}
		pod, reasons, missing := tryConstraint(request, constraint)
		switch {
		case missing != nil:
			verdict.Missing = missing
		case len(reasons) == 0 && verdict.Missing != nil:
			reasons = []Reason{{
				Constraint: constraint.Name,
				Message: "it would admit the pod, but a preferred constraint is still waiting for the " + verdict.Missing.Of +
					"'s annotation " + verdict.Missing.Key,
			}}
		case len(reasons) == 0:
			verdict.Constraint, verdict.Subject, verdict.Pod = constraint.Name, subject, pod
			return verdict
		}
		verdict.Reasons = append(verdict.Reasons, reasons...)
	}
	return verdict
}

// tryConstraint returns the pod with the values that a constraint sets, or the reasons why the constraint does not
// admit it, and the annotation that the namespace does not have yet.
func tryConstraint(request Request, constraint *v1alpha1.SecurityContextConstraints) (*corev1.Pod, []Reason, *Missing) {
	p, err := newProvider(constraint, request.NamespaceAnnotations, request.AccountAnnotations)
	if err != nil {
		missing, _ := errors.AsType[*Missing](err)
		if missing != nil {
			if reasons := deniesRegardless(request, constraint); len(reasons) > 0 {
				return nil, reasons, nil
			}
			if missing.Of == "namespace" && isPoolExhausted(constraint) {
				missing.Why = ErrPoolExhausted
			}
		}
		return nil, []Reason{{Constraint: constraint.Name, Message: fmt.Sprintf("it cannot be evaluated: %v", err)}},
			missing
	}
	pod := request.Pod.DeepCopy()
	p.denyUnknown(request.Unknown)
	if reasons := p.admit(pod); len(reasons) > 0 {
		return nil, reasons, nil
	}
	if changed := forbiddenChange(request.Mode, request.Pod, pod); changed != "" {
		return nil, []Reason{{
			Constraint: constraint.Name, Field: changed,
			Message: "it would have to be changed, which is not possible for an existing pod",
		}}, nil
	}
	return pod, nil, nil
}

// isPoolExhausted reports whether the status of a constraint says that user IDs for some namespaces are missing.
func isPoolExhausted(constraint *v1alpha1.SecurityContextConstraints) bool {
	ready := apimeta.FindStatusCondition(constraint.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Reason == ReasonPoolExhausted
}

// NeedsAllocation reports whether a constraint takes user IDs or an SELinux level from the namespace.
func NeedsAllocation(constraint *v1alpha1.SecurityContextConstraints) bool {
	_, err := newProvider(constraint, nil, nil)
	_, isMissing := errors.AsType[*Missing](err)
	return isMissing
}

// deniesRegardless returns what a constraint does not allow, whatever the missing annotations of the namespace are.
func deniesRegardless(request Request, constraint *v1alpha1.SecurityContextConstraints) []Reason {
	p, err := newProvider(constraint,
		map[string]string{v1alpha1.UIDRangeAnnotation: "1/2", v1alpha1.MCSAnnotation: "s0:c1,c0"},
		func() (map[string]string, error) { return map[string]string{v1alpha1.AccountUIDAnnotation: "2"}, nil })
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(p.admit(request.Pod.DeepCopy()), func(reason Reason) bool {
		return slices.ContainsFunc([]string{"runAsUser", "seLinuxOptions", "fsGroup", "supplementalGroups"},
			func(given string) bool {
				return strings.Contains(reason.Field, given)
			})
	})
}

// forbiddenChange returns what a constraint changes in a pod although the mode does not allow it, or "".
func forbiddenChange(mode Mode, before, after *corev1.Pod) string {
	if mode == MayMutate {
		return ""
	}
	if mode == MayMutateEphemeralContainers {
		before = before.DeepCopy()
		before.Spec.EphemeralContainers = after.Spec.EphemeralContainers
	}
	switch {
	case !equality.Semantic.DeepEqual(before.Spec.SecurityContext, after.Spec.SecurityContext):
		return "spec.securityContext"
	case !equality.Semantic.DeepEqual(before.Spec, after.Spec):
		return "the security context of a container"
	}
	return ""
}
