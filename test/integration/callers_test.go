package integration_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/marks"
)

// These files give the API server a client certificate for webhooks, as docs/operations.md shows them.
const (
	admissionConfiguration = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: &webhooks
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: %[1]s/webhooks.kubeconfig
- name: ValidatingAdmissionWebhook
  configuration: *webhooks
`
	webhookKubeconfig = `
apiVersion: v1
kind: Config
users:
- name: '*'
  user: {client-certificate: %[1]s/apiserver.crt, client-key: %[1]s/apiserver.key}
`
)

// With a CA for client certificates, the webhooks answer only requests with the API server's certificate.
func TestWebhooksRequireTheAPIServersCertificate(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	dir := t.TempDir()
	server, key, authority, err := controlplane.ClientCertificate("kube-apiserver")
	require.NoError(t, err)
	for name, content := range map[string][]byte{
		"ca.crt": authority, "apiserver.crt": server, "apiserver.key": key,
		"admission.yaml":      fmt.Appendf(nil, admissionConfiguration, dir),
		"webhooks.kubeconfig": fmt.Appendf(nil, webhookKubeconfig, dir),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	cluster := newClusterWithoutOperator(t, "--admission-control-config-file="+filepath.Join(dir, "admission.yaml"))
	require.NoError(t, cluster.startOperator(t.Context(), "--webhook-client-ca-file="+filepath.Join(dir, "ca.crt")))

	s := newScope(t, cluster)
	s.createSpace("a", "", "pods", "1")
	ns := s.createNamespaceInSpace("n", "a")
	s.waitCounted(ns)

	t.Run("the API server is answered", func(t *testing.T) {
		s := s.withT(t)
		s.createTemplate("t", configMap("a", "v"))
		require.NoError(t, s.createWithRetries(newPod(ns, "p")))
		s.expectQuotaExceeded(s.createWithRetries(newPod(ns, "q")), "a", "pods=2", "pods=1")
		s.delete(newPod(ns, "p"))
		s.waitUsage("a", "pods: 0/1")
	})

	t.Run("requests without its certificate are rejected", func(t *testing.T) {
		s := s.withT(t)
		with := func(certificate, key []byte) *http.Client {
			pair, err := tls.X509KeyPair(certificate, key)
			require.NoError(t, err)
			client := newUntrustedClient()
			client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{pair}
			return client
		}
		counter, err := s.getUsageQuota(t.Context(), ns)
		require.NoError(t, err)
		_, status, err := s.sendForgedReview(t.Context(), newUntrustedClient(), counter, 1)
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, status)
		for _, path := range []string{"/mutate", "/validate", "/validate/attributes/1"} {
			response, err := newUntrustedClient().Post("https://"+cluster.webhookAddress+path, "application/json", nil)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, http.StatusUnauthorized, response.StatusCode, path)
		}
		other, otherKey, _, err := controlplane.ClientCertificate("kube-apiserver")
		require.NoError(t, err)
		_, _, err = s.sendForgedReview(t.Context(), with(other, otherKey), counter, 1)
		require.Error(t, err, "the certificate is of another CA")
		allowed, _, err := s.sendForgedReview(t.Context(), with(server, key), counter, 1)
		require.NoError(t, err)
		require.True(t, allowed, "the certificate is the API server's")
	})

	t.Run("errors show the URL of the webhooks to users", func(t *testing.T) {
		s := s.withT(t)
		require.NoError(t, cluster.operator.Kill())
		require.ErrorContains(t, s.client.Create(t.Context(), s.newTemplate("u", configMap("b", "v"))),
			"https://"+cluster.webhookAddress+"/validate?timeout=")
		require.NoError(t, cluster.startOperator(t.Context(), "--webhook-client-ca-file="+filepath.Join(dir, "ca.crt")))
	})
}
