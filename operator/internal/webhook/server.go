package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/certificates"
	"nstpl.dev/nstpl/operator/internal/leadership"
)

// Flags are the flags about the webhook server.
type Flags struct {
	// Address is the host:port at which the webhooks are served.
	Address string
	// URL is the address of the webhooks for the API server if the operator runs outside of the cluster.
	URL string
	// CertDir contains tls.crt and tls.key if another program, such as cert-manager, writes them. If it is empty, the
	// operator issues its certificate.
	CertDir string
	// ClientCAFile contains, as PEM, the authorities of which one must have signed the API server's client certificate.
	// If it is empty, every client gets answers.
	ClientCAFile string
}

// Options are the arguments of Setup.
type Options struct {
	Leader *leadership.Leader
	// Clients may be used by replicas that do not lead.
	Clients kubernetes.Interface
	Stored  *Stored
	Chain   Chain
	Flags
	// Ending is closed when the operator starts to shut down.
	Ending <-chan struct{}
}

// Setup adds the webhook server, which every replica runs, and the controller of the webhook configurations, which the
// leader runs, to a manager. The operator is not ready before the server serves its certificate and the API server
// calls the webhooks as the leader has written them.
func Setup(mgr ctrl.Manager, o Options) error {
	decisions := NewMetrics(metrics.Registry)
	configurations := &Configurations{
		Leader: o.Leader, Stored: o.Stored, Chain: o.Chain, Endpoint: Endpoint{URL: o.URL},
		Called: make(chan struct{}),
	}
	serving, err := o.serverOptions()
	if err != nil {
		return err
	}
	var renewed <-chan struct{}
	if o.CertDir == "" {
		keeper, err := newKeeper(o)
		if err != nil {
			return err
		}
		if err := mgr.Add(keeper); err != nil {
			return err
		}
		serving.TLSOpts = append(serving.TLSOpts, func(config *tls.Config) {
			config.GetCertificate = keeper.GetCertificate
		})
		configurations.Endpoint.Bundle, renewed = keeper.Bundle, keeper.Changed()
	}
	if o.ClientCAFile != "" {
		serving.TLSOpts = append(serving.TLSOpts, verifyClients(o.ClientCAFile))
	}
	server := ctrlwebhook.NewServer(serving)
	o.Chain.Serve(server, decisions, o.ClientCAFile != "", o.Ending)
	if err := mgr.Add(server); err != nil {
		return err
	}
	if err := configurations.SetupWithManager(mgr, renewed); err != nil {
		return fmt.Errorf("set up the controller of webhook configurations: %w", err)
	}
	return mgr.AddReadyzCheck("webhooks", newReadiness(mgr, server, o, configurations).check)
}

// serverOptions returns the options of the server without those about certificates that the operator issues.
func (o Options) serverOptions() (ctrlwebhook.Options, error) {
	serving := ctrlwebhook.Options{CertDir: o.CertDir}
	host, port, err := net.SplitHostPort(o.Address)
	if err == nil {
		serving.Host = host
		serving.Port, err = strconv.Atoi(port)
	}
	if err != nil {
		return serving, fmt.Errorf("--webhook-bind-address is %q, not host:port: %w", o.Address, err)
	}
	return serving, nil
}

// verifyClients returns a TLS option that verifies client certificates. A client without a certificate completes the
// handshake, as the readiness check does, but Serve answers its requests with status 401. The file is read for every
// connection, so that authorities can be replaced while the operator runs.
func verifyClients(file string) func(*tls.Config) {
	return func(config *tls.Config) {
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			authorities := x509.NewCertPool()
			data, err := os.ReadFile(file)
			if err == nil && !authorities.AppendCertsFromPEM(data) {
				err = errors.New("the file contains no certificate")
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

// newKeeper returns a keeper of a certificate that is valid for the Service and for the host of the URL.
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
