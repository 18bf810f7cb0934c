package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// errNotCalled says why a replica is not ready.
var errNotCalled = errors.New("the API server does not call the webhooks yet")

// readiness is the readiness check of a replica.
type readiness struct {
	// started reports whether the server of the webhooks listens.
	started func(*http.Request) error
	// elected is closed once the replica leads.
	elected        <-chan struct{}
	address        string
	configurations *Configurations
	// called is true once the API server called the webhooks of another leader.
	called atomic.Bool
}

func newReadiness(mgr ctrl.Manager, server ctrlwebhook.Server, o Options, configurations *Configurations) *readiness {
	return &readiness{
		started: server.StartedChecker(), elected: mgr.Elected(), address: o.Address, configurations: configurations,
	}
}

// check fails until the replica serves its certificate, and the API server calls the webhooks: those that the replica
// has written if it leads, and otherwise those that another leader has written. A replica does not lead before its
// caches are filled.
func (r *readiness) check(request *http.Request) error {
	if err := r.started(request); err != nil {
		return err
	}
	if bundle := r.configurations.Endpoint.Bundle; bundle != nil {
		if err := verify(request.Context(), r.address, bundle()); err != nil {
			return err
		}
	}
	select {
	case <-r.elected:
	default:
		return r.checkStandby(request.Context())
	}
	select {
	case <-r.configurations.Called:
		return nil
	default:
		return errNotCalled
	}
}

// checkStandby fails until the API server calls the webhooks that are stored.
func (r *readiness) checkStandby(ctx context.Context) error {
	if r.called.Load() {
		return nil
	}
	stored, err := r.configurations.Stored.Get(ctx, v1alpha1.WebhookName)
	if err != nil {
		return err
	}
	if len(stored.Webhooks) == 0 {
		return errNotCalled
	}
	isUsed, err := r.configurations.Stored.isUsed(ctx, stored)
	if err != nil {
		return err
	}
	if !isUsed {
		return errNotCalled
	}
	r.called.Store(true)
	return nil
}

// verify performs a TLS handshake with the webhook server as the API server would.
func verify(ctx context.Context, address string, bundle []byte) error {
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(bundle) {
		return errors.New("the webhooks have no certificate yet")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	dialer := &tls.Dialer{Config: &tls.Config{
		RootCAs: authorities, ServerName: v1alpha1.WebhookService + "." + v1alpha1.OperatorNamespace + ".svc",
	}}
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("the webhook server does not serve its certificate: %w", err)
	}
	return connection.Close()
}
