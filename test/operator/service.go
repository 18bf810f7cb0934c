package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Service forwards requests to the webhooks of several replicas in turn, like a Kubernetes Service.
type Service struct {
	server *http.Server
	ended  chan error

	mu       sync.Mutex
	backends []string // host:port
	next     int
}

// NewService serves at an address with the replicas' certificate, which they store in the cluster.
func NewService(ctx context.Context, reader client.Reader, address string) (*Service, error) {
	certificate := func() (*tls.Certificate, error) {
		secret := &corev1.Secret{}
		key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.WebhookSecret}
		if err := reader.Get(ctx, key, secret); err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		return &pair, err
	}
	s := &Service{ended: make(chan error, 1)}
	s.server = &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return certificate()
		}},
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(s.backend()) },
			Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // both ends are the test's
			ErrorLog:  log.New(io.Discard, "", 0),
		},
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	go func() { s.ended <- s.server.ServeTLS(listener, "", "") }()
	return s, nil
}

// Use sets the addresses of the replicas.
func (s *Service) Use(backends ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = backends
}

// SetReady adds the address of a replica that is ready, or removes that of one that is not.
func (s *Service) SetReady(backend string, isReady bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.backends = slices.DeleteFunc(s.backends, func(other string) bool { return other == backend })
	if isReady {
		s.backends = append(s.backends, backend)
	}
}

// Close stops the service and closes its connections.
func (s *Service) Close() error {
	err := s.server.Close()
	if ended := <-s.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

func (s *Service) backend() *url.URL {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.backends) == 0 {
		return &url.URL{Scheme: "https", Host: "127.0.0.1:1"}
	}
	s.next++
	return &url.URL{Scheme: "https", Host: s.backends[s.next%len(s.backends)]}
}
