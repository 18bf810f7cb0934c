package vetting

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	objectschema "nstpl.dev/nstpl/operator/engine/schema"
)

// bound is a RoleBinding.
var bound = &unstructured.Unstructured{Object: map[string]any{
	"kind": "RoleBinding", "roleRef": map[string]any{"kind": "ClusterRole", "name": "root"},
}}

// without returns an error of the API server that has no reason.
func without(message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusInternalServerError, Message: message}}
}

// invalid returns the error of the API server about an invalid Service.
func invalid(errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", errs)
}

func TestAnswerOf(t *testing.T) {
	longest := strings.Repeat("n", 63)
	services := schema.GroupResource{Resource: "services"}
	forbidden := func(message string) error { return apierrors.NewForbidden(services, "web", errors.New(message)) }
	tests := map[string]struct {
		err error
		// want are the problems, as path: message: remedy.
		want    []string
		warning string
	}{
		"accepted": {},
		"an unknown field": {
			err: without("failed to create typed patch object (nstpl-trial/budget; /v1, Kind=ResourceQuota): " +
				".spec.hards: field not declared in schema"),
			want: []string{"spec.hards: unknown field"},
		},
		"several fields": {
			err: without("failed to create typed patch object (nstpl-trial/x; /v1, Kind=ConfigMap): errors:\n" +
				"  .data.a: expected string, got &value.valueUnstructured{Value:5}\n" +
				"  .data.c: expected string, got &value.valueUnstructured{Value:map[string]interface {}{\"d\":\"e\"}}\n" +
				"  .spec.ingress: expected list, got &{map[]}\n" +
				"  .spec.keep: expected numeric (int or float), got string"),
			want: []string{
				"data.a: must be a string, not 5", "data.c: must be a string, not an object",
				"spec.ingress: must be a list, not an object", "spec.keep: must be a number, not string",
			},
		},
		"a quantity": {
			err: without("failed to convert new object (nstpl-trial/budget; /v1, Kind=ResourceQuota) to proper " +
				"version: unable to convert unstructured object to /v1, Kind=ResourceQuota: quantities must match the " +
				"regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
			want: []string{": a quantity in it is not a number with an optional unit, such as 500m, 5 or 1Gi"},
		},
		"a Secret": {
			err: without("failed to convert new object (nstpl-trial/x; /v1, Kind=Secret) to proper version: " +
				"unable to convert unstructured object to /v1, Kind=Secret: error decoding from json: " +
				"illegal base64 data at input byte 3"),
			want: []string{": a value in it is not encoded with base64: use stringData for plain text"},
		},
		"a Go type": {
			err: without("unable to convert unstructured object to /v1, Kind=Pod: json: cannot unmarshal string " +
				"into Go struct field PodSpec.spec.hostNetwork of type bool"),
			want: []string{"spec.hostNetwork: has a value of the wrong type, string"},
		},
		"strict decoding": {
			err:  apierrors.NewBadRequest(`strict decoding error: unknown field "spec.a", duplicate field "spec.b"`),
			want: []string{"spec.a: unknown field", "spec.b: unknown field"},
		},
		"invalid values": {
			err: invalid(field.Required(field.NewPath("spec", "ports"), ""),
				field.Invalid(field.NewPath("metadata", "name"), longest+"-x", "too long")),
			want: []string{
				"spec.ports: Required value", `metadata.name: Invalid value: "$(NAMESPACE)-x": too long`,
			},
		},
		"a port that another Service has": {
			err: invalid(field.Invalid(field.NewPath("spec", "ports").Index(0).Child("nodePort"), 30000,
				"provided port is already allocated")),
			warning: "spec.ports[0].nodePort is already allocated, so only one namespace can have the object",
		},
		"an admission policy": {
			err:  forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not at " + longest),
			want: []string{`: ValidatingAdmissionPolicy "p" denies it: not at $(NAMESPACE)`},
		},
		"an admission webhook": {
			err: &apierrors.StatusError{ErrStatus: metav1.Status{
				Code: 500, Reason: metav1.StatusReasonInternalError,
				Message: `admission webhook "w.example.com" denied the request: no`,
			}},
			want: []string{`: admission webhook "w.example.com" denies it: no`},
		},
		"an admission webhook without a reason": {
			err:  forbidden(`admission webhook "w.example.com" denied the request without explanation`),
			want: []string{`: admission webhook "w.example.com" denies it: it gives no reason`},
		},
		"an admission webhook without dry runs": {
			err:     apierrors.NewBadRequest(`admission webhook "w" does not support dry run`),
			warning: `it was not tried on the API server, since an admission webhook "w" does not support dry run`,
		},
		"missing rights of the operator": {
			err:  forbidden(`User "o" cannot patch resource "services" in API group "" in the namespace "nstpl-trial"`),
			want: []string{`: User "o" cannot patch resource "services" in API group ""`},
		},
		"a ServiceAccount of another object": {
			err: forbidden(`error looking up service account nstpl-trial/web: serviceaccount "web" not found`),
		},
		"rules of a ClusterRole": {
			err: forbidden("user \"o\" is attempting to grant RBAC permissions not currently held:\n" +
				`{APIGroups:["secret"], Resources:["payrolls"], Verbs:["get"]}`),
			want: []string{boundRemedy},
		},
		"an absent ClusterRole": {
			err: apierrors.NewNotFound(schema.GroupResource{
				Group: "rbac.authorization.k8s.io", Resource: "clusterroles",
			},
				"root"),
			want: []string{boundRemedy},
		},
		"a uid": {
			err:  apierrors.NewConflict(services, "web", errors.New("uid mismatch")),
			want: []string{"metadata: has a uid or a resourceVersion, which the API server sets: remove them"},
		},
		"an error without a reason": {
			err:  without(`unsupported role reference kind: ""`),
			want: []string{`: unsupported role reference kind: ""`},
		},
		"a resource without patch": {
			err:  apierrors.NewMethodNotSupported(services, "patch"),
			want: []string{": patch is not supported on resources of kind \"services\""},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := answerOf(test.err, bound)
			require.NoError(t, err)
			require.Equal(t, test.warning, got.warning)
			require.Len(t, got.problems, len(test.want), "%v", got.problems)
			for i, want := range test.want {
				text := got.problems[i].Path + ": " + got.problems[i].Message
				if got.problems[i].Remedy != "" {
					text += ": " + got.problems[i].Remedy
				}
				require.Equal(t, want, text)
			}
		})
	}
}

const boundRemedy = `roleRef: the operator may not bind ClusterRole "root": add a ClusterRole with the label ` +
	`policy.nstpl.dev/aggregate-to-operator: "true" and the rule {apiGroups: ["rbac.authorization.k8s.io"], ` +
	`resources: ["clusterroles"], resourceNames: ["root"], verbs: [bind]}`

// The API server may accept the object later, so its answer is not a problem of the template.
func TestAnswerOfAnUnavailableServer(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("terminating"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a timeout":         {apierrors.NewTimeoutError("slow", 1), "slow"},
		"too many requests": {apierrors.NewTooManyRequests("busy", 1), "busy"},
		"a webhook":         {apierrors.NewInternalError(errors.New(`failed calling webhook "w"`)), `webhook "w"`},
		"unavailable":       {apierrors.NewServiceUnavailable("down"), "down"},
		"etcd": {
			without("etcdserver: leader changed"), "leader changed",
		},
		"the network": {
			&url.Error{Op: "Patch", URL: "https://api", Err: errors.New("connection refused")}, "connection refused",
		},
		"no answer":           {context.DeadlineExceeded, "does not answer"},
		"a deleted namespace": {terminating, "kubectl create namespace nstpl-trial"},
		"no namespace": {
			apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "nstpl-trial"), "does not exist",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := answerOf(test.err, bound)
			require.Nil(t, got)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestMergeProblems(t *testing.T) {
	explained := []objectschema.Problem{
		{Path: "spec.containers[0].imag", Message: "unknown field", Remedy: "did you mean image?"},
		{Path: "spec.replicas", Message: "must be a number"},
	}
	bySchema := &answer{bySchema: true, problems: []objectschema.Problem{
		{Path: `spec.containers[name="a"].imag`, Message: "unknown field"},
		{Message: "a value cannot be decoded"},
	}}
	server := &answer{problems: []objectschema.Problem{
		{Path: "spec.replicas", Message: "Invalid value"},
		{Path: "spec.selector", Message: "Required value"},
		{Message: "denied by a policy"},
	}}
	require.Equal(t, explained, mergeProblems(explained, bySchema))
	require.Equal(t, append(explained, server.problems[1:]...), mergeProblems(explained, server))
	require.Equal(t, server.problems, mergeProblems(nil, server))
}
