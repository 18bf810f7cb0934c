package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// bundle returns the certificates of authorities that are valid for some times from now.
func bundle(t *testing.T, left ...time.Duration) []byte {
	t.Helper()
	var all []byte
	for _, duration := range left {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotBefore: now.Add(-1000 * time.Hour), NotAfter: now.Add(duration),
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		require.NoError(t, err)
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return all
}

// withHook returns facts with the webhook for templates.
func withHook(t *testing.T, client admissionregistrationv1.WebhookClientConfig) *after {
	t.Helper()
	a := healthy(t)
	a.hooks.value = []hook{{configuration: v1alpha1.WebhookName, name: templateWebhook, client: client}}
	return a
}

func TestConfigurationsOfWebhooks(t *testing.T) {
	t.Parallel()
	a := withHook(t, admissionregistrationv1.WebhookClientConfig{})
	requireResult(t, []Result{checkConfigurations(a)}, OK, "1 webhook of the operator configured", "")
	a.hooks.value[0].configuration = "of-another"
	requireResult(t, []Result{checkConfigurations(a)}, Failure, "has not written its webhooks", "kubectl get pods")
	a.hooks.err = errForbidden
	requireResult(t, []Result{checkConfigurations(a)}, Unknown, "you may not list webhook configurations", "administrator")
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		bundle          []byte
		status          Status
		message, remedy string
	}{
		"valid":              {bundle(t, 300*day), OK, "is valid for 300d", ""},
		"expires soon":       {bundle(t, 3*day), Warning, "expires in 3d", "the operator's log"},
		"an old and a new":   {bundle(t, -3*day, 100*day), OK, "is valid for 100d", ""},
		"expired":            {bundle(t, -3*day), Failure, "expired 3d", "the operator's log"},
		"empty":              {nil, Failure, "its caBundle is empty", "the operator's log"},
		"not a certificate":  {[]byte("x"), Failure, "its caBundle has no certificate", "cert-manager"},
		"a bad certificate":  {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}), Failure, "an invalid certificate", "log"},
		"followed by spaces": {append(bundle(t, 300*day), " \n"...), OK, "is valid for 300d", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := withHook(t, admissionregistrationv1.WebhookClientConfig{CABundle: test.bundle})
			requireResult(t, checkCertificates(a), test.status, test.message, test.remedy)
		})
	}
	require.Empty(t, checkCertificates(healthy(t)), "without webhooks, another check fails")
	public := admissionregistrationv1.WebhookClientConfig{URL: new("https://operator.example.com/validate")}
	require.Empty(t, checkCertificates(withHook(t, public)), "a public authority can have signed it")
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	a := withHook(t, admissionregistrationv1.WebhookClientConfig{})
	requireResult(t, checkEndpoints(a), Failure, "has no ready endpoint", "kubectl get pods")
	a.endpoints.value = []*discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{
		{Conditions: discoveryv1.EndpointConditions{Ready: new(false)}},
	}}}
	requireResult(t, checkEndpoints(a), Failure, "has no ready endpoint", "kubectl get pods")
	a.endpoints.value = append(a.endpoints.value, &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{
		{Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}, {},
	}})
	requireResult(t, checkEndpoints(a), OK, "has 2 ready endpoints", "")
	a.endpoints.err = errForbidden
	requireResult(t, checkEndpoints(a), Unknown, "you may not list endpointslices in namespace nstpl-system", "administrator")
	require.Empty(t, checkEndpoints(withHook(t, admissionregistrationv1.WebhookClientConfig{URL: new("https://a")})))
}

// failedCall returns the error of the API server for a webhook that it cannot call.
func failedCall(cause string) error {
	return apierrors.NewInternalError(errors.New(`failed calling webhook "template.policy.nstpl.dev": failed to call webhook: ` +
		cause))
}

// mayNotCreate returns the error of RBAC.
func mayNotCreate(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "",
		errors.New(`User "joe" cannot create resource "`+resource+`" in API group "" at the cluster scope`))
}

func TestCallsOfWebhooks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err             error
		status          Status
		message, remedy string
	}{
		"allowed": {nil, OK, "reaches the webhooks", ""},
		"denied by the webhook": {
			errors.New(`admission webhook "template.policy.nstpl.dev" denied the request: no`), OK, "reaches the webhooks", "",
		},
		"expired certificate": {
			failedCall("x509: certificate has expired or is not yet valid"), Failure,
			"cannot call the webhooks of the operator: x509: certificate has expired", "certificate",
		},
		"no pods": {
			failedCall(`no endpoints available for service "nstpl-operator-webhook"`), Failure, "no endpoints", "start the operator",
		},
		"refused":    {failedCall("dial tcp: connect: connection refused"), Failure, "refused", "start the operator"},
		"no Service": {failedCall(`service "nstpl-operator-webhook" not found`), Failure, "not found", "apply install.yaml"},
		"a firewall": {failedCall("context deadline exceeded"), Failure, "deadline", "port 9443"},
		"without the right": {
			mayNotCreate("namespacetemplates"), Unknown, "you may not create namespacetemplates", "administrator",
		},
		"denied by others": {
			errors.New(`admission webhook "other.example.com" denied the request: no`), Unknown,
			`failed before the webhook was called: admission webhook "other.example.com"`, "run the command again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := withHook(t, admissionregistrationv1.WebhookClientConfig{})
			a.template = test.err
			requireResult(t, checkCalls(a), test.status, test.message, test.remedy)
		})
	}
	unlisted := healthy(t)
	unlisted.hooks.err = errForbidden
	requireResult(t, checkCalls(unlisted), Unknown, "with or without the webhooks of the operator", "make this request possible")
	require.Empty(t, checkCalls(healthy(t)), "without webhooks, another check fails")
}

func TestAdmissionOfNamespaces(t *testing.T) {
	t.Parallel()
	created := &unstructured.Unstructured{}
	created.SetAnnotations(map[string]string{v1alpha1.CreatorAnnotation: "joe"})
	a := healthy(t)
	a.namespace.value = created
	requireResult(t, []Result{checkNamespaceAdmission(a)}, OK, "creators of new namespaces are recorded", "")
	a.namespace.value = &unstructured.Unstructured{}
	requireResult(t, []Result{checkNamespaceAdmission(a)}, Failure, "not recorded", "apply install.yaml")
	a.server.Version = "v1.35.4"
	requireResult(t, []Result{checkNamespaceAdmission(a)}, Failure, "not recorded", "must be running")
	denied := func(message string) error { // as admission.NewForbidden does
		return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "nstpl-check-abcde", errors.New(message))
	}
	for message, want := range map[string]struct {
		err    error
		status Status
	}{
		"you may not create namespaces": {mayNotCreate("namespaces"), Unknown},
		"the admission of nstpl decides about new namespaces: admission webhook": {
			errors.New(`admission webhook "selfservice.policy.nstpl.dev" denied the request: no`), OK,
		},
		"the admission of nstpl decides": {
			denied("ValidatingAdmissionPolicy 'nstpl-template-use' with binding 'nstpl-template-use' denied request: ask"), OK,
		},
		"the dry run of a Namespace was rejected: namespaces": {
			denied("ValidatingAdmissionPolicy 'names' with binding 'names' denied request: no"), Unknown,
		},
		"no namespace can be created": {
			errors.New(`failed calling webhook "other.example.com": failed to call webhook: refused`), Failure,
		},
		"the dry run of a Namespace was rejected": {
			errors.New(`admission webhook "namespaces.projectcapsule.dev" denied the request: no tenant`), Unknown,
		},
	} {
		a.namespace.err = want.err
		requireResult(t, []Result{checkNamespaceAdmission(a)}, want.status, message, "")
	}
}
