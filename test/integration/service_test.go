package integration_test

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// service stands before the webhooks of several replicas, as a Service does, and has each request answered by another one.
type service struct {
	mu       sync.Mutex
	backends []*operator
	next     int
}

// newService has the operators that start from now on in a world be asked through a service, whose certificate is theirs.
func newService(t *testing.T, w *world) *service {
	t.Helper()
	s := &service{}
	w.behindService = true
	certificate := sync.OnceValues(func() (*tls.Certificate, error) {
		secret := &corev1.Secret{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.WebhookSecret}, secret); err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		return &pair, err
	})
	server := &http.Server{
		Addr: w.webhookAddress, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() }},
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(s.backend()) },
			Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // both ends are this test's
			ErrorLog:  log.New(io.Discard, "", 0),
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServeTLS("", "") }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return s
}

// use says which replicas there are.
func (s *service) use(backends ...*operator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = backends
}

func (s *service) backend() *url.URL {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.backends) == 0 {
		return &url.URL{Scheme: "https", Host: "127.0.0.1:1"}
	}
	s.next++
	return &url.URL{Scheme: "https", Host: s.backends[s.next%len(s.backends)].webhooks}
}
