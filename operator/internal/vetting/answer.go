package vetting

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// answer is what the API server says about an object in a dry run. The zero value means that it accepts the object.
type answer struct {
	problems []fieldProblem
	// warning says why the object could not be tried, or is "".
	warning string
}

// fieldProblem is why the API server rejects an object.
type fieldProblem struct {
	// path is the path of a field in the object, or "".
	path            string
	message, remedy string
	// bySchema is true if the object does not have the schema of its kind.
	bySchema bool
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
		return &answer{problems: []fieldProblem{{message: policy + " denies it: " + reason}}}, nil
	}
	if problems := schemaProblems(message); len(problems) > 0 {
		return &answer{problems: problems}, nil
	}
	switch {
	case strings.Contains(message, "does not support dry run"):
		return &answer{warning: "it was not tried on the API server, since an " + message}, nil
	case isUnavailable(err):
		return nil, errors.New(message)
	case apierrors.IsConflict(err): // nothing is stored, so the object itself names another one
		return &answer{problems: []fieldProblem{{
			path: "metadata", message: "has a uid or a resourceVersion, which the API server sets",
			remedy: "remove them",
		}}}, nil
	case isUnbound(err):
		return &answer{problems: []fieldProblem{unboundRole(object)}}, nil
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
func unboundRole(object *unstructured.Unstructured) fieldProblem {
	kind, _, _ := unstructured.NestedString(object.Object, "roleRef", "kind")
	name, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
	resource := strings.ToLower(kind) + "s"
	names := fmt.Sprintf("resourceNames: [%q], ", name)
	if render.Unrender(name) != name {
		names = ""
	}
	return fieldProblem{
		path: "roleRef", message: fmt.Sprintf("the operator may not bind %s %q", kind, render.Unrender(name)),
		remedy: fmt.Sprintf(`add a ClusterRole with the label %s: "true" and the rule `+
			`{apiGroups: [%q], resources: [%q], %sverbs: [bind]}`,
			v1alpha1.AggregateLabel, rbacv1.GroupName, resource, names),
	}
}

var (
	typedObject = regexp.MustCompile(`(?s)^failed to create typed patch object \(.*?, Kind=\w+\): (.*)$`)
	conversion  = regexp.MustCompile(
		`(?s)^(?:failed to convert new object \(.*?, Kind=\w+\) to proper version: )?unable to convert unstructured object to .*?, Kind=\w+: (?:error decoding from json: )?(.*)$`)
	unknownField = regexp.MustCompile(`(?:unknown|duplicate) field "([^"]+)"`)
	wrongGoType  = regexp.MustCompile(
		`^json: cannot unmarshal (\w+)(?: [^ ]+)? into Go (?:struct field \w+\.([^ ]+)|value) of type (\S+)$`)
	unstructuredValue = regexp.MustCompile(`^&(?:value\.valueUnstructured)?\{(?:Value:)?(.*)\}$`)
)

// schemaProblems returns the problems in a message about an object that does not have the schema of its kind. The API
// server returns such messages with the status of an internal error.
func schemaProblems(message string) []fieldProblem {
	var problems []fieldProblem
	if match := typedObject.FindStringSubmatch(message); match != nil {
		for line := range strings.SplitSeq(strings.TrimPrefix(match[1], "errors:\n"), "\n") {
			path, reason, found := strings.Cut(strings.TrimSpace(line), ": ")
			if !found || !strings.HasPrefix(path, ".") {
				path, reason = "", strings.TrimSpace(line)
			}
			problems = append(problems, fieldProblem{
				path: strings.TrimPrefix(path, "."), message: schemaReason(reason), bySchema: true,
			})
		}
		return problems
	}
	if match := conversion.FindStringSubmatch(message); match != nil {
		problem := conversionProblem(match[1])
		problem.bySchema = true
		return []fieldProblem{problem}
	}
	if strings.Contains(message, "strict decoding error") {
		for _, match := range unknownField.FindAllStringSubmatch(message, -1) {
			problems = append(problems, fieldProblem{path: match[1], message: "unknown field", bySchema: true})
		}
	}
	return problems
}

// schemaReason returns why a field does not have its schema, without the terms of the API server's implementation.
func schemaReason(reason string) string {
	if reason == "field not declared in schema" {
		return "unknown field"
	}
	expected, got, found := strings.Cut(strings.TrimPrefix(reason, "expected "), ", got ")
	if !found {
		return reason
	}
	expected = strings.NewReplacer("map", "an object", "list", "a list", "string", "a string", "boolean", "a boolean",
		"numeric (int or float)", "a number").Replace(expected)
	if match := unstructuredValue.FindStringSubmatch(got); match != nil {
		got = match[1]
		if strings.HasPrefix(got, "map[") {
			got = "an object"
		}
	}
	return fmt.Sprintf("must be %s, not %s", expected, got)
}

// conversionProblem returns why a value of an object cannot be decoded.
func conversionProblem(reason string) fieldProblem {
	switch match := wrongGoType.FindStringSubmatch(reason); {
	case match != nil:
		return fieldProblem{path: match[2], message: "has a value of the wrong type, " + match[1]}
	case strings.HasPrefix(reason, "quantities must match"):
		return fieldProblem{message: "a quantity in it is not a number with an optional unit, such as 500m, 5 or 1Gi"}
	case strings.HasPrefix(reason, "illegal base64"):
		return fieldProblem{
			message: "a value in it is not encoded with base64", remedy: "use stringData for plain text",
		}
	}
	return fieldProblem{message: reason}
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
				a.problems = append(a.problems, fieldProblem{path: cause.Field, message: reason})
			}
		}
	}
	if len(a.problems) == 0 && a.warning == "" {
		a.problems = []fieldProblem{{message: objectPrefix.ReplaceAllString(message, "")}}
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
