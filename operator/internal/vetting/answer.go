package vetting

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	objectschema "nstpl.dev/nstpl/operator/engine/schema"
)

// answer is what the API server says about an object in a dry run. The zero value means that it accepts the object.
type answer struct {
	problems []objectschema.Problem
	// bySchema is true if the object does not have the schema of its kind.
	bySchema bool
	// warning says why the object could not be tried, or is "".
	warning string
}

// concerns reports whether one of the problems is, or may be, that of the same field as another problem.
func (a *answer) concerns(found objectschema.Problem) bool {
	return slices.ContainsFunc(a.problems, func(p objectschema.Problem) bool {
		return p.Path == "" || lastField(p.Path) == lastField(found.Path)
	})
}

var errNoTrialNamespace = errors.New("the namespace " + v1alpha1.TrialNamespace + ", in which the API server tries " +
	"the objects of templates by dry runs, does not exist or is being deleted: once it is deleted, " +
	"create it with kubectl create namespace " + v1alpha1.TrialNamespace)

// answerOf returns the answer to a dry run of an object that ended with an error, or with nil. It returns an error if
// the API server could not decide, and may do so later.
func answerOf(err error, object *unstructured.Unstructured) (*answer, error) {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return &answer{}, nil
	case !errors.As(err, &status):
		return nil, readable(err)
	case lacksTrialNamespace(err):
		return nil, errNoTrialNamespace
	}
	message := trialNamespaceNoise.Replace(render.Unrender(status.Status().Message))
	if policy, reason, ok := denialIn(message); ok {
		return &answer{problems: []objectschema.Problem{{Message: policy + " denies it: " + reason}}}, nil
	}
	if problems := objectschema.Rejected(message); len(problems) > 0 {
		return &answer{problems: problems, bySchema: true}, nil
	}
	switch {
	case strings.Contains(message, "does not support dry run"):
		return &answer{warning: "it was not tried on the API server, since an " + message}, nil
	case isUnavailable(err):
		return nil, errors.New(message)
	case apierrors.IsConflict(err): // nothing is stored, so the object itself names another one
		return &answer{problems: []objectschema.Problem{{
			Path: "metadata", Message: "has a uid or a resourceVersion, which the API server sets",
			Remedy: "remove them",
		}}}, nil
	case isUnbound(err):
		return &answer{problems: []objectschema.Problem{unboundRole(object)}}, nil
	case strings.Contains(message, "error looking up service account"):
		return &answer{}, nil // the template, another one or a user of the namespace creates it
	}
	return validationAnswer(status.Status(), message), nil
}

// readable returns an error of the connection to the API server in fewer words.
func readable(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("the API server does not answer")
	}
	if network, ok := errors.AsType[*url.Error](err); ok {
		return network.Err
	}
	return err
}

func lacksTrialNamespace(err error) bool {
	var status apierrors.APIStatus
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces" && status.Status().Details.Name == v1alpha1.TrialNamespace
}

// isUnavailable reports whether the API server, or a webhook that it calls, could not decide about a request.
func isUnavailable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonUnknown {
		// The errors of decoding and defaulting have no reason, and those of etcd.
		return containsAny(status.Status().Message, []string{"etcd", "timeout", "timed out", "context", "connection"})
	}
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err)
}

var (
	webhookDenial = regexp.MustCompile(
		`(?s)(admission webhook "[^"]+") denied the request(?:: (.*)| without explanation)`)
	policyDenial = regexp.MustCompile(
		`(?s)ValidatingAdmissionPolicy '([^']+)' with binding '[^']+' denied request: (.*)`)
)

// denialIn returns the admission webhook or policy that denied a request, and its reason.
func denialIn(message string) (who, reason string, ok bool) {
	if match := webhookDenial.FindStringSubmatch(message); match != nil {
		if match[2] == "" {
			match[2] = "it gives no reason"
		}
		return match[1], match[2], true
	}
	if match := policyDenial.FindStringSubmatch(message); match != nil {
		return fmt.Sprintf("ValidatingAdmissionPolicy %q", match[1]), match[2], true
	}
	return "", "", false
}

// isUnbound reports whether a RoleBinding was rejected since the operator may not bind its role. The message would list
// the rules of the role, which the template's author may not be allowed to read.
func isUnbound(err error) bool {
	if apierrors.IsForbidden(err) &&
		strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held") {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Group == rbacv1.GroupName
}

// unboundRole returns the problem of a RoleBinding whose role the operator may not bind.
func unboundRole(object *unstructured.Unstructured) objectschema.Problem {
	kind, _, _ := unstructured.NestedString(object.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
	resource := strings.ToLower(kind) + "s"
	names := fmt.Sprintf("resourceNames: [%q], ", name)
	if render.Unrender(name) != name {
		names = ""
	}
	return objectschema.Problem{
		Path: "roleRef", Message: fmt.Sprintf("the operator may not bind %s %q", kind, render.Unrender(name)),
		Remedy: fmt.Sprintf(`add a ClusterRole with the label %s: "true" and the rule `+
			`{apiGroups: [%q], resources: [%q], %sverbs: [bind]}`,
			v1alpha1.AggregateLabel, rbacv1.GroupName, resource, names),
	}
}

// allocated is in the reason why a Service is rejected whose port or address another one has. That may be the Service
// that the template has populated already.
const allocated = "is already allocated"

// validationAnswer returns the answer to a request that the API server rejected as invalid or forbidden.
func validationAnswer(status metav1.Status, message string) *answer {
	var a answer
	if status.Details != nil && status.Reason == metav1.StatusReasonInvalid {
		for _, cause := range status.Details.Causes {
			reason := trialNamespaceNoise.Replace(render.Unrender(cause.Message))
			switch {
			case cause.Field == "<nil>": // the note that other checks were omitted
			case strings.Contains(reason, allocated):
				a.warning = cause.Field + " " + allocated + ", so only one namespace can have the object"
			default:
				a.problems = append(a.problems, objectschema.Problem{Path: cause.Field, Message: reason})
			}
		}
	}
	if len(a.problems) == 0 && a.warning == "" {
		a.problems = []objectschema.Problem{{Message: objectPrefix.ReplaceAllString(message, "")}}
	}
	return &a
}

// objectPrefix matches the kind and the name with which messages begin.
var objectPrefix = regexp.MustCompile(`^\S+ "[^"]*" is (?:forbidden|invalid): `)

// trialNamespaceNoise removes the trial namespace from messages.
var trialNamespaceNoise = strings.NewReplacer(
	` in the namespace "`+v1alpha1.TrialNamespace+`"`, "", v1alpha1.TrialNamespace+"/", "")

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
