package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/certificates"
	"nstpl.dev/nstpl/operator/internal/leadership"
)

// Options are what Setup needs.
type Options struct {
	Leader *leadership.Leader
	// Clients are those of a replica that may not lead.
	Clients kubernetes.Interface
	Chain   Chain
	// Address is the host:port at which the webhooks are served.
	Address string
	// URL is where the API server finds them if the operator runs outside of the cluster.
	URL string
	// CertDir holds tls.crt and tls.key if another program, such as cert-manager, writes them.
	CertDir string
	// ClientCAFile holds, as PEM, the authorities that must have signed the API server's client certificate. Without
	// it, every client is answered.
	ClientCAFile string
	// Ending is closed when the operator is about to end.
	Ending <-chan struct{}
}

// Setup adds the server of the webhooks to a manager, which every replica runs, and the controller of the webhook
// configurations, which the leader runs. The operator is not ready before both have done their work.
func Setup(mgr ctrl.Manager, o Options) error {
	decisions, err := NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	configurations := &Configurations{
		Client: o.Leader.Client, Chain: o.Chain, Endpoint: Endpoint{URL: o.URL},
		Written: make(chan struct{}), Queues: o.Leader.Queues,
	}
	serving := ctrlwebhook.Options{CertDir: o.CertDir}
	var renewed <-chan struct{}
	if o.CertDir == "" {
		keeper, err := newKeeper(o)
		if err != nil {
			return err
		}
		if err := mgr.Add(keeper); err != nil {
			return err
		}
		serving.TLSOpts = []func(*tls.Config){func(config *tls.Config) {
			config.GetCertificate = keeper.GetCertificate
		}}
		configurations.Endpoint.Bundle, renewed = keeper.Bundle, keeper.Changed()
	}
	if o.ClientCAFile != "" {
		serving.TLSOpts = append(serving.TLSOpts, identifyClients(o.ClientCAFile))
	}
	host, port, err := net.SplitHostPort(o.Address)
	if err == nil {
		serving.Host = host
		serving.Port, err = strconv.Atoi(port)
	}
	if err != nil {
		return fmt.Errorf("--webhook-bind-address is %q, not host:port: %w", o.Address, err)
	}
	server := ctrlwebhook.NewServer(serving)
	o.Chain.Serve(server, decisions, o.ClientCAFile != "", o.Ending)
	if err := mgr.Add(server); err != nil {
		return err
	}
	if err := configurations.SetupWithManager(mgr, renewed); err != nil {
		return fmt.Errorf("set up the controller of webhook configurations: %w", err)
	}
	return mgr.AddReadyzCheck("webhooks", ready(mgr, server, o, configurations))
}

// identifyClients has client certificates verified. A client without one completes the handshake, as the readiness
// probe does, and is answered no review. The file is read for every connection, so that authorities can be replaced.
func identifyClients(file string) func(*tls.Config) {
	return func(config *tls.Config) {
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			authorities := x509.NewCertPool()
			data, err := os.ReadFile(file)
			if err == nil && !authorities.AppendCertsFromPEM(data) {
				err = errors.New("it holds no certificate")
			}
			if err != nil {
				return nil, fmt.Errorf("--webhook-client-ca-file %s: %w", file, err)
			}
			verifying := config.Clone()
			verifying.GetConfigForClient = nil
			verifying.ClientAuth, verifying.ClientCAs = tls.VerifyClientCertIfGiven, authorities
			return verifying, nil
		}
	}
}

// newKeeper makes the certificate good for the Service, and for the host of the URL in its place.
func newKeeper(o Options) (*certificates.Keeper, error) {
	hosts := []string{v1alpha1.WebhookService + "." + v1alpha1.OperatorNamespace + ".svc"}
	if o.URL != "" {
		parsed, err := url.Parse(o.URL)
		if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" {
			return nil, fmt.Errorf("--webhook-url is %q: it must be https://host:port", o.URL)
		}
		hosts = append(hosts, parsed.Hostname())
	}
	secrets := o.Clients.CoreV1().Secrets(v1alpha1.OperatorNamespace)
	return certificates.NewKeeper(secrets, v1alpha1.WebhookSecret, hosts, certificates.DefaultLifetimes()), nil
}

// ready says what is missing until the certificate is served and, by the leader, the API server was told.
func ready(
	mgr ctrl.Manager, server ctrlwebhook.Server, o Options, configurations *Configurations,
) func(*http.Request) error {
	started := server.StartedChecker()
	return func(request *http.Request) error {
		if err := started(request); err != nil {
			return err
		}
		if bundle := configurations.Endpoint.Bundle; bundle != nil {
			if err := verify(request.Context(), o.Address, bundle()); err != nil {
				return err
			}
		}
		select {
		case <-mgr.Elected():
		default:
			return nil
		}
		select {
		case <-configurations.Written:
			return nil
		default:
			return errors.New("the webhook configurations are not written yet")
		}
	}
}

// verify makes a TLS handshake as the API server would.
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
		return fmt.Errorf("the webhooks' certificate is not served: %w", err)
	}
	return connection.Close()
}
