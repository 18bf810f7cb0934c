package scc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Mode says what a constraint may change.
type Mode int

// The modes: all of a new pod, its ephemeral containers alone, or nothing.
const (
	MayMutate Mode = iota
	MayMutateEphemeralContainers
	MayNotMutate
)

// Subjects by whose right a constraint is used.
const (
	ServiceAccountSubject = "serviceaccount"
	UserSubject           = "user"
)

// Request is a pod that is to be admitted.
type Request struct {
	Pod  *corev1.Pod
	Mode Mode
	// NamespaceAnnotations are those of the pod's namespace.
	NamespaceAnnotations map[string]string
	// Constraints are all that there are, Defaulted and in order.
	Constraints []*v1alpha1.SecurityContextConstraints
	// First names the constraint that is tried before all others, if it exists. Empty means none.
	First string
	// UnknownVolumes are the fields of the pod's volumes that Pod lacks: see UnknownVolumes.
	UnknownVolumes []string
	// Usable tells by whose right a constraint may be used: ServiceAccountSubject, UserSubject or, if it may not, "".
	// It is asked about one after the other, as long as none admits the pod.
	Usable func(*v1alpha1.SecurityContextConstraints) string
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

// Verdict is what came of a request: the constraint that admits the pod and the pod as it makes it, or why none does.
type Verdict struct {
	Constraint string
	Subject    string
	Pod        *corev1.Pod
	// Reasons are those of the constraints before the one that admits the pod, or of all.
	Reasons []Reason
	// Missing is what the namespace has not got yet, for which a constraint waits that may be the pod's.
	Missing *Missing
}

// Allowed tells whether a constraint admits the pod.
func (v Verdict) Allowed() bool { return v.Constraint != "" }

// Review tries the constraints in order. The first that admits the pod wins. One that fails leaves no trace; one that
// can't be evaluated is skipped, and never keeps another from admitting, unless all that it lacks is what the namespace
// is yet to be given, and it allows the rest: the pod is not to have another constraint for being early.
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
				Message: "there are no such SecurityContextConstraints"}}
			return verdict
		}
	}
	if first := slices.IndexFunc(candidates, func(c *v1alpha1.SecurityContextConstraints) bool {
		return c.Name == request.First
	}); first > 0 {
		candidates = slices.Concat(candidates[first:first+1], candidates[:first], candidates[first+1:])
	}
	for _, constraint := range candidates {
		subject := request.Usable(constraint)
		if subject == "" {
			verdict.Reasons = append(verdict.Reasons,
				Reason{Constraint: constraint.Name, Message: "not usable by user or serviceaccount"})
			continue
		}
		pod, reasons, missing := try(request, constraint)
		switch {
		case missing != nil:
			verdict.Missing = missing
		case len(reasons) == 0 && verdict.Missing != nil:
			reasons = []Reason{{
				Constraint: constraint.Name,
				Message:    "it would admit the pod, after one that waits for what the namespace is given",
			}}
		case len(reasons) == 0:
			verdict.Constraint, verdict.Subject, verdict.Pod = constraint.Name, subject, pod
			return verdict
		}
		verdict.Reasons = append(verdict.Reasons, reasons...)
	}
	return verdict
}

// try returns the pod as a constraint makes it, or why it does not admit it, and what the namespace has not got yet.
func try(request Request, constraint *v1alpha1.SecurityContextConstraints) (*corev1.Pod, []Reason, *Missing) {
	p, err := newProvider(constraint, request.NamespaceAnnotations)
	if err != nil {
		missing, _ := errors.AsType[*Missing](err)
		if missing != nil {
			if reasons := refusesAnyway(request, constraint); len(reasons) > 0 {
				return nil, reasons, nil
			}
		}
		return nil, []Reason{{Constraint: constraint.Name, Message: fmt.Sprintf("it can't be evaluated: %v", err)}},
			missing
	}
	pod := request.Pod.DeepCopy()
	if !p.allowsVolume(v1alpha1.FSTypeAll) {
		for _, field := range request.UnknownVolumes {
			p.refuse(field, "its type is not known")
		}
	}
	if reasons := p.admit(pod); len(reasons) > 0 {
		return nil, reasons, nil
	}
	if changed := changedBeyond(request.Mode, request.Pod, pod); changed != "" {
		return nil, []Reason{{
			Constraint: constraint.Name, Field: changed,
			Message: "it would have to be changed, which can't be done to a pod that is there",
		}}, nil
	}
	return pod, nil, nil
}

// refusesAnyway returns what a constraint does not allow, whatever the namespace is given.
func refusesAnyway(request Request, constraint *v1alpha1.SecurityContextConstraints) []Reason {
	p, err := newProvider(constraint,
		map[string]string{v1alpha1.UIDRangeAnnotation: "1/1", v1alpha1.MCSAnnotation: "s0:c1,c0"})
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

// changedBeyond returns what of a pod differs though it may not.
func changedBeyond(mode Mode, before, after *corev1.Pod) string {
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
