package operator

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
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/admission"
	"nstpl.dev/nstpl/operator/internal/bindings"
	"nstpl.dev/nstpl/operator/internal/certificates"
	"nstpl.dev/nstpl/operator/internal/controller"
	"nstpl.dev/nstpl/operator/scc"
)

// addWebhooks has every replica answer the API server's questions, and the leader see to it that they are asked. The
// operator isn't ready before both are so.
func addWebhooks(
	ctx context.Context, mgr ctrl.Manager, leader leader, clients kubernetes.Interface, options Options,
	ending <-chan struct{},
) error {
	attributes, err := newAttributes(ctx, mgr, leader, options)
	if err != nil {
		return err
	}
	constraints, err := newSCC(ctx, mgr, leader, clients, options)
	if err != nil {
		return err
	}
	quota, err := newQuota(ctx, mgr, clients)
	if err != nil {
		return err
	}
	table, err := newTable(ctx, mgr, clients, attributes, constraints, quota, options)
	if err != nil {
		return err
	}
	admissionMetrics, err := admission.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	configurations := &admission.Configurations{
		Client: leader.client, Table: table, Endpoint: admission.Endpoint{URL: options.WebhookURL},
		OnChange: func(do func()) {
			attributes.OnChange(do)
			constraints.OnChange(do)
			quota.OnChange(do)
		}, Written: make(chan struct{}), Queues: leader.queues,
	}
	serving := webhook.Options{CertDir: options.WebhookCertDir}
	var renewed <-chan struct{}
	if options.WebhookCertDir == "" {
		keeper, err := newKeeper(clients, options)
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
	if options.WebhookClientCAFile != "" {
		serving.TLSOpts = append(serving.TLSOpts, identifyClients(options.WebhookClientCAFile))
	}
	host, port, err := net.SplitHostPort(options.WebhookAddress)
	if err == nil {
		serving.Host = host
		serving.Port, err = strconv.Atoi(port)
	}
	if err != nil {
		return fmt.Errorf("--webhook-bind-address is %q, not host:port: %w", options.WebhookAddress, err)
	}
	server := webhook.NewServer(serving)
	table.Serve(server, admissionMetrics, options.WebhookClientCAFile != "", ending)
	if err := mgr.Add(server); err != nil {
		return err
	}
	if err := configurations.SetupWithManager(mgr, renewed); err != nil {
		return fmt.Errorf("set up the controller of webhook configurations: %w", err)
	}
	return mgr.AddReadyzCheck("webhooks", ready(mgr, server, options, configurations))
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

// newAttributes also has it said of the rules whether they are enforced.
func newAttributes(
	ctx context.Context, mgr ctrl.Manager, leader leader, options Options,
) (*admission.Attributes, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.ContentType = runtime.ContentTypeProtobuf // there may be tens of thousands of bindings
	rbac, err := rbacv1client.NewForConfigAndClient(config, mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	watch := bindings.NewWatch(ctx, rbac.RESTClient())
	attributes, err := admission.NewAttributes(ctx, mgr.GetCache(), mgr.GetAPIReader(), watch,
		admission.Exempt{Users: options.AttributeExemptUsers, Groups: options.AttributeExemptGroups})
	if err != nil {
		return nil, err
	}
	enforcement := &controller.Enforcement{
		Client: leader.client, Rules: attributes.Current, OnChange: attributes.OnChange, Marker: admission.Marker,
		Queues: leader.queues,
	}
	if err := enforcement.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of protected attributes: %w", err)
	}
	return attributes, mgr.Add(attributes)
}

// newSCC also has namespaces given what constraints go by.
func newSCC(
	ctx context.Context, mgr ctrl.Manager, leader leader, clients kubernetes.Interface, options Options,
) (*admission.SCC, error) {
	exempt := slices.Concat(scc.ExemptNamespaces, options.SCCExemptNamespaces)
	grants := admission.NewSCCGrants(clients.AuthorizationV1().SubjectAccessReviews(),
		func(ctx context.Context, reference scc.Reference) (scc.Identity, error) {
			return controller.Identity(ctx, mgr.GetAPIReader(), reference)
		})
	constraints, err := admission.NewSCC(ctx, mgr.GetCache(), mgr.GetAPIReader(), grants, admission.SCCOptions{
		ExemptNamespaces: exempt, Intersection: options.SCCIntersection, CallerGuardsExec: options.SCCCallerGuardsExec,
	})
	if err != nil {
		return nil, err
	}
	allocations := &controller.Allocations{
		Client: leader.client, ConfigMaps: leader.clientset.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace),
		Recorder: mgr.GetEventRecorder(controller.Reporter), Pool: options.SCCPool, Exempt: exempt,
		Needed: constraints.Needed, OnChange: constraints.OnChange, Caches: leader.caches, Queues: leader.queues,
	}
	if err := allocations.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of allocations: %w", err)
	}
	references := &controller.References{
		Client: leader.client, Live: mgr.GetAPIReader(), Cache: mgr.GetCache(),
		Recorder: mgr.GetEventRecorder(controller.Reporter),
		Caches:   leader.caches, Queues: leader.queues,
	}
	if err := references.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of references: %w", err)
	}
	return constraints, nil
}

func newTable(
	ctx context.Context, mgr ctrl.Manager, clients kubernetes.Interface, attributes *admission.Attributes,
	constraints *admission.SCC, quota *admission.Quota, options Options,
) (admission.Table, error) {
	hold, err := admission.NewHold(ctx, mgr.GetCache(), clients.AuthorizationV1().SubjectAccessReviews())
	if err != nil {
		return nil, err
	}
	hierarchy := admission.NewHierarchy(mgr.GetAPIReader(), clients.CoreV1().ResourceQuotas(v1alpha1.OperatorNamespace))
	template := admission.NewTemplate(mgr.GetRESTMapper(), clients, mgr.GetClient(), mgr.GetAPIReader(), attributes)
	table := admission.NewTable(template, admission.NewAttributeRules(clients, attributes), hierarchy, attributes,
		constraints, quota,
		admission.NewTurns(quota), hold)
	if options.MutateNamespaces {
		table = table.WithNamespaceMutators(admission.NamespaceMutators{
			Templates: mgr.GetClient(), ConfigMaps: clients.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace),
		})
	}
	return table, nil
}

// newQuota also has told, and counted again, what quotas of policyspaces refuse.
func newQuota(ctx context.Context, mgr ctrl.Manager, clients kubernetes.Interface) (*admission.Quota, error) {
	refusals, err := admission.NewRefusals(clients.CoreV1(), mgr.GetEventRecorder(controller.Reporter),
		metrics.Registry)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(refusals); err != nil {
		return nil, err
	}
	return admission.NewQuota(ctx, mgr.GetCache(), mgr.GetAPIReader(), mgr.GetClient(), refusals.Tell)
}

// newKeeper makes the certificate good for the Service, and for the host of the URL in its place.
func newKeeper(clients kubernetes.Interface, options Options) (*certificates.Keeper, error) {
	hosts := []string{v1alpha1.WebhookService + "." + v1alpha1.OperatorNamespace + ".svc"}
	if options.WebhookURL != "" {
		parsed, err := url.Parse(options.WebhookURL)
		if err != nil || parsed.Scheme != "https" || parsed.Hostname() == "" {
			return nil, fmt.Errorf("--webhook-url is %q: it must be https://host:port", options.WebhookURL)
		}
		hosts = append(hosts, parsed.Hostname())
	}
	secrets := clients.CoreV1().Secrets(v1alpha1.OperatorNamespace)
	return certificates.NewKeeper(secrets, v1alpha1.WebhookSecret, hosts, certificates.DefaultLifetimes()), nil
}

// ready says what is missing until the certificate is served and, by the leader, the API server was told.
func ready(
	mgr ctrl.Manager, server webhook.Server, options Options, configurations *admission.Configurations,
) func(*http.Request) error {
	started := server.StartedChecker()
	return func(request *http.Request) error {
		if err := started(request); err != nil {
			return err
		}
		if bundle := configurations.Endpoint.Bundle; bundle != nil {
			if err := verify(request.Context(), options.WebhookAddress, bundle()); err != nil {
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
