package integration_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/marks"
)

// certificateAuthority signs client certificates.
type certificateAuthority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func newAuthority(t *testing.T) certificateAuthority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "clients"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return certificateAuthority{certificate, key}
}

// issue returns a client certificate.
func (a certificateAuthority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// writePEMFiles writes a certificate and, unless it is nil, its key to files in a folder.
func writePEMFiles(t *testing.T, dir, name string, certificate []byte, key crypto.PrivateKey) {
	t.Helper()
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".crt"), data, 0o600))
	if key == nil {
		return
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t,
		os.WriteFile(filepath.Join(dir, name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
			0o600))
}

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
	clients := newAuthority(t)
	server := clients.issue(t, "kube-apiserver")
	writePEMFiles(t, dir, "ca", clients.certificate.Raw, nil)
	writePEMFiles(t, dir, "apiserver", server.Certificate[0], server.PrivateKey)
	for name, text := range map[string]string{
		"admission.yaml": admissionConfiguration, "webhooks.kubeconfig": webhookKubeconfig,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), fmt.Appendf(nil, text, dir), 0o600))
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
		s.expectQuotaExceeded(s.client.Create(t.Context(), newPod(ns, "q")), "a", "pods=2", "pods=1")
		s.delete(newPod(ns, "p"))
		s.waitUsage("a", "pods: 0/1")
	})

	t.Run("requests without its certificate are rejected", func(t *testing.T) {
		s := s.withT(t)
		with := func(certificate tls.Certificate) *http.Client {
			client := newUntrustedClient()
			client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{certificate}
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
		_, _, err = s.sendForgedReview(t.Context(), with(newAuthority(t).issue(t, "kube-apiserver")), counter, 1)
		require.Error(t, err, "the certificate is of another CA")
		allowed, _, err := s.sendForgedReview(t.Context(), with(server), counter, 1)
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
