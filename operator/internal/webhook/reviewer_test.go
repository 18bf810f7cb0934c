package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"nstpl.dev/nstpl/operator/codes"
)

type validatorFunc func(*Request) error

func (f validatorFunc) Validate(_ context.Context, request *Request) error { return f(request) }

var everything = []admissionregistrationv1.RuleWithOperations{
	Rule("*", "*", admissionregistrationv1.AllScopes, []string{"*/*"}, admissionregistrationv1.OperationAll),
}

func validator(name string, policy admissionregistrationv1.FailurePolicyType, err error) Plugin {
	return Plugin{Name: name, Rules: everything, FailurePolicy: policy, Validator: validatorFunc(func(*Request) error {
		return err
	})}
}

// mutator appends its name to the value at data.order.
func mutator(name string, err error) Plugin {
	return Plugin{
		Name: name, Rules: everything, FailurePolicy: admissionregistrationv1.Ignore,
		Mutator: MutatorFunc(func(_ context.Context, request *Request) error {
			order, _, _ := unstructured.NestedString(request.Object.Object, "data", "order")
			if nested := unstructured.SetNestedField(request.Object.Object, order+name, "data",
				"order"); nested != nil {
				return nested
			}
			return err
		}),
	}
}

func chainOf(t *testing.T, plugins ...Plugin) reviewer {
	t.Helper()
	return reviewer{chain: plugins, metrics: NewMetrics(prometheus.NewRegistry())}
}

func creation(t *testing.T, object map[string]any) ctrladmission.Request {
	t.Helper()
	raw, err := json.Marshal(object)
	require.NoError(t, err)
	return ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Namespace: "team-a", Name: "a",
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Object:   runtime.RawExtension{Raw: raw},
	}}
}

func TestMutatorsRunInTheOrderOfTheChain(t *testing.T) {
	object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"kept": "1"}}
	request := creation(t, object)
	tests := []struct {
		name    string
		plugins []Plugin
		want    string
	}{
		{"in order", []Plugin{mutator("a", nil), mutator("b", nil), mutator("c", nil)}, "abc"},
		{
			"the change of a mutator that fails is dropped",
			[]Plugin{mutator("a", nil), mutator("b", errors.New("no")), mutator("c", nil)}, "ac",
		},
		{
			"a mutator without a rule for the request",
			[]Plugin{mutator("a", nil), {Name: "b", Mutator: mutator("b", nil).Mutator}}, "a",
		},
		{
			"validators change nothing",
			[]Plugin{mutator("a", nil), validator("b", admissionregistrationv1.Fail, errors.New("no"))}, "a",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			response := chainOf(t, test.plugins...).mutate(t.Context(), request)
			require.True(t, response.Allowed)
			require.NoError(t, response.Complete(request))
			patch, err := jsonpatch.DecodePatch(response.Patch)
			require.NoError(t, err)
			patched, err := patch.Apply(request.Object.Raw)
			require.NoError(t, err)
			want, err := json.Marshal(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"kept": "1", "order": test.want},
			})
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(patched))
		})
	}
	t.Run("a denial", func(t *testing.T) {
		response := chainOf(t, mutator("a", nil), mutator("b", Deny(codes.OptOut, "no"))).mutate(t.Context(), request)
		require.False(t, response.Allowed)
		require.EqualValues(t, 403, response.Result.Code)
		require.Equal(t, "no (nstpl:opt-out)", response.Result.Message)
	})
	t.Run("nothing to change", func(t *testing.T) {
		response := chainOf(t).mutate(t.Context(), request)
		require.True(t, response.Allowed)
		require.Empty(t, response.Patches)
	})
	t.Run("a failure under the failure policy Fail", func(t *testing.T) {
		strict := mutator("a", errors.New("no"))
		strict.FailurePolicy = admissionregistrationv1.Fail
		response := chainOf(t, strict).mutate(t.Context(), request)
		require.False(t, response.Allowed)
		require.EqualValues(t, 500, response.Result.Code)
	})
}

func TestMutatorsAreNotCalledForDeletions(t *testing.T) {
	request := creation(t, nil)
	request.Operation, request.OldObject, request.Object = admissionv1.Delete, request.Object, runtime.RawExtension{}
	response := chainOf(t, mutator("a", nil)).mutate(t.Context(), request)
	require.True(t, response.Allowed)
	require.Empty(t, response.Patches)
}

func TestDecisionsOfAllValidatorsAreJoined(t *testing.T) {
	const fail, ignore = admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	deferred := Defer(codes.Held, "not yet", 2*time.Second)
	deny := func(message string) error { return Deny(codes.OptOut, message) }
	first := func(err error) Plugin {
		p := validator("first", fail, err)
		p.DecidesFirst = true
		return p
	}
	taken := AlreadyExists(schema.GroupResource{Resource: "namespaces"}, "a")
	tests := []struct {
		name    string
		plugins []Plugin
		code    int32
		message string
	}{
		{"all allow", []Plugin{validator("a", fail, nil)}, 200, ""},
		{
			"two deny", []Plugin{validator("a", fail, Deny(codes.OptOut, "one")), validator("b", ignore, Deny(codes.OptOut, "two"))}, 403,
			"one (nstpl:opt-out)\ntwo (nstpl:opt-out)",
		},
		{
			"a denial takes precedence over a deferral",
			[]Plugin{validator("a", fail, deferred), validator("b", fail, Deny(codes.OptOut, "one"))}, 403,
			"one (nstpl:opt-out)",
		},
		{
			"a denial takes precedence over a failure",
			[]Plugin{validator("a", fail, errors.New("down")), validator("b", fail, Deny(codes.OptOut, "one"))}, 403,
			"one (nstpl:opt-out)",
		},
		{
			"a name that is taken", []Plugin{validator("a", fail, deferred), validator("b", fail, taken)}, 409,
			`namespaces "a" already exists`,
		},
		{
			"a denial takes precedence over a name that is taken",
			[]Plugin{validator("a", fail, taken), validator("b", fail, Deny(codes.OptOut, "one"))}, 403,
			"namespaces \"a\" already exists\none (nstpl:opt-out)",
		},
		{
			"a name that is taken besides a denial",
			[]Plugin{validator("a", fail, deny("one")), validator("b", fail, taken)}, 403,
			"one (nstpl:opt-out)\nnamespaces \"a\" already exists",
		},
		{"a deferral", []Plugin{validator("a", fail, nil), validator("b", fail, deferred)}, 429, "not yet (nstpl:held)"},
		{
			"a failure takes precedence over a deferral",
			[]Plugin{validator("a", fail, errors.New("down")), validator("b", fail, deferred)}, 500,
			"a could not decide: down (nstpl:undecided)",
		},
		{
			"the first denies", []Plugin{first(deny("one")), validator("b", fail, deny("two"))}, 403, "one (nstpl:opt-out)",
		},
		{"the first defers", []Plugin{first(deferred), validator("b", fail, deny("two"))}, 429, "not yet (nstpl:held)"},
		{"the first allows", []Plugin{first(nil), validator("b", fail, deny("two"))}, 403, "two (nstpl:opt-out)"},
		{"a failure under the failure policy Ignore", []Plugin{validator("a", ignore, errors.New("down"))}, 200, ""},
		{"no rule matches", []Plugin{{Name: "a", Validator: validatorFunc(func(*Request) error {
			return Deny(codes.OptOut, "one")
		})}}, 200, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			request := creation(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})
			response := chainOf(t, test.plugins...).validate(t.Context(), request)
			require.NoError(t, response.Complete(request))
			require.Equal(t, test.code == 200, response.Allowed)
			require.Equal(t, test.code, response.Result.Code)
			require.Equal(t, test.message, response.Result.Message)
			if test.code == 429 {
				require.EqualValues(t, 2, response.Result.Details.RetryAfterSeconds)
			}
		})
	}
}

// A later validator reserves nothing for a request that is denied, or repeated.
func TestValidatorsKnowOfEarlierDecisions(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		policy admissionregistrationv1.FailurePolicyType
		want   bool
	}{
		"allowed":             {nil, admissionregistrationv1.Fail, false},
		"denied":              {Deny(codes.OptOut, "no"), admissionregistrationv1.Fail, true},
		"deferred":            {Defer(codes.Held, "not yet", time.Second), admissionregistrationv1.Fail, true},
		"undecided":           {errors.New("down"), admissionregistrationv1.Fail, true},
		"undecided, optional": {errors.New("down"), admissionregistrationv1.Ignore, false},
	} {
		t.Run(name, func(t *testing.T) {
			isDenied := !test.want
			later := Plugin{Name: "later", Rules: everything, Validator: validatorFunc(func(request *Request) error {
				isDenied = request.IsDenied
				return nil
			})}
			chainOf(t, validator("first", test.policy, test.err), later).validate(t.Context(), creation(t, nil))
			require.Equal(t, test.want, isDenied)
		})
	}
}

func TestPluginHandlesTheRequestsThatItsRulesMatch(t *testing.T) {
	const namespaced, cluster = admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope
	tests := []struct {
		rule                                             admissionregistrationv1.RuleWithOperations
		operation                                        admissionv1.Operation
		group, version, resource, subresource, namespace string
		want                                             bool
	}{
		{Rule("", "v1", namespaced, []string{"pods"}, "CREATE"), "CREATE", "", "v1", "pods", "", "a", true},
		{Rule("", "v1", namespaced, []string{"pods"}, "CREATE"), "UPDATE", "", "v1", "pods", "", "a", false},
		{Rule("", "v1", namespaced, []string{"pods"}, "CREATE"), "CREATE", "", "v1", "pods", "status", "a", false},
		{Rule("", "v1", namespaced, []string{"pods"}, "CREATE"), "CREATE", "apps", "v1", "pods", "", "a", false},
		{Rule("", "v1", namespaced, []string{"pods/*"}, "*"), "CREATE", "", "v1", "pods", "exec", "a", true},
		{Rule("", "v1", namespaced, []string{"pods/*"}, "*"), "CREATE", "", "v1", "pods", "", "a", true},
		{Rule("", "v1", namespaced, []string{"*/status"}, "*"), "UPDATE", "", "v1", "pods", "status", "a", true},
		{Rule("", "v1", namespaced, []string{"*"}, "*"), "UPDATE", "", "v1", "pods", "status", "a", false},
		{Rule("*", "*", namespaced, []string{"*/*"}, "*"), "DELETE", "x", "v2", "any", "sub", "a", true},
		{Rule("*", "*", namespaced, []string{"*/*"}, "*"), "UPDATE", "", "v1", "namespaces", "", "a", false},
		{Rule("*", "*", namespaced, []string{"*/*"}, "*"), "UPDATE", "", "v1", "nodes", "", "", false},
		{Rule("", "v1", cluster, []string{"namespaces"}, "*"), "UPDATE", "", "v1", "namespaces", "", "a", true},
		{Rule("*", "*", cluster, []string{"*/*"}, "*"), "UPDATE", "", "v1", "pods", "", "a", false},
	}
	for _, test := range tests {
		p := Plugin{Rules: []admissionregistrationv1.RuleWithOperations{test.rule}}
		request := &Request{Request: ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: test.operation, Namespace: test.namespace, SubResource: test.subresource,
			Resource: metav1.GroupVersionResource{Group: test.group, Version: test.version, Resource: test.resource},
		}}}
		require.Equal(t, test.want, p.handles(request), "%+v", test)
	}
}

// revisions records the revision with which the validator of a plugin is called.
func revisions(name string, into map[string]string) Plugin {
	return Plugin{Name: name, Rules: everything, Validator: validatorFunc(func(request *Request) error {
		into[name] = request.Revision
		request.Warnings = append(request.Warnings, "warning of "+name)
		return nil
	})}
}

func TestOnlyTheOwnerOfAWebhookReceivesItsRevision(t *testing.T) {
	t.Parallel()
	received := map[string]string{}
	ctx := context.WithValue(t.Context(), callerKey{}, caller{"b", "rev1"})
	chain := chainOf(t, revisions("a", received), revisions("b", received), revisions("c", received))
	response := chain.validate(ctx, creation(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}))
	require.True(t, response.Allowed)
	require.Equal(t, map[string]string{"a": "", "b": "rev1", "c": ""}, received)
	require.Equal(t, []string{"warning of a", "warning of b", "warning of c"}, response.Warnings)

	mutators := Chain{mutatorWithRevision("a", received), mutatorWithRevision("b", received)}
	response = chainOf(t, mutators...).mutate(ctx, creation(t, map[string]any{"kind": "ConfigMap"}))
	require.True(t, response.Allowed)
	require.Equal(t, map[string]string{"a": "", "b": "rev1", "c": ""}, received)
}

// mutatorWithRevision records the revision with which the mutator of a plugin is called.
func mutatorWithRevision(name string, into map[string]string) Plugin {
	into[name] = "not called"
	return Plugin{Name: name, Rules: everything, Mutator: MutatorFunc(func(_ context.Context, request *Request) error {
		into[name] = request.Revision
		return nil
	})}
}

// handlers collects the handlers that a chain registers.
type handlers struct {
	ctrlwebhook.Server
	mux *http.ServeMux
}

func (h handlers) Register(path string, hook http.Handler) { h.mux.Handle(path, hook) }

func TestServe(t *testing.T) {
	t.Parallel()
	verified := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}
	open, closed := make(chan struct{}), make(chan struct{})
	close(closed)
	for name, test := range map[string]struct {
		path       string
		identified bool
		connection *tls.ConnectionState
		ending     <-chan struct{}
		code       int
		revision   string
		closes     bool
	}{
		"any client":                  {path: "/validate", ending: open, code: 200},
		"a client with a certificate": {"/validate", true, verified, open, 200, "", false},
		"a client without one":        {"/validate", true, &tls.ConnectionState{}, open, 401, "", false},
		"a client without TLS":        {path: "/validate", identified: true, ending: open, code: 401},
		"a shutdown":                  {path: "/validate", ending: closed, code: 200, closes: true},
		"a revision":                  {path: "/validate/a/rev1", ending: open, code: 200, revision: "rev1"},
		"another plugin's revision":   {path: "/validate/b/rev1", ending: open, code: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			metrics := NewMetrics(prometheus.NewRegistry())
			received := map[string]string{}
			server := handlers{mux: http.NewServeMux()}
			Chain{revisions("a", received)}.Serve(server, metrics, test.identified, test.ending)
			review := creation(t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap"})
			body, err := json.Marshal(admissionv1.AdmissionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
				Request:  &review.AdmissionRequest,
			})
			require.NoError(t, err)
			request := httptest.NewRequest(http.MethodPost, test.path, bytes.NewReader(body))
			request.Header.Set("Content-Type", "application/json")
			request.TLS = test.connection
			recorder := httptest.NewRecorder()
			server.mux.ServeHTTP(recorder, request)
			require.Equal(t, test.code, recorder.Code, recorder.Body)
			require.Equal(t, test.closes, recorder.Header().Get("Connection") == "close")
			if test.code == 200 {
				require.Equal(t, map[string]string{"a": test.revision}, received)
			}
		})
	}
}
