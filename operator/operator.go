// Package operator runs the controllers.
package operator

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/constraint"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/operator/version"
)

// Options are the operator's flags.
type Options struct {
	// LeaderElect lets several replicas run of which one works.
	LeaderElect bool
	// MetricsAddress and ProbeAddress are host:port; "0" serves nothing.
	MetricsAddress, ProbeAddress string
	// ExcludeNamespaces are never populated.
	ExcludeNamespaces []string
	// WebhookAddress is the host:port at which the webhooks are served.
	WebhookAddress string
	// WebhookURL is where the API server finds them, if the operator runs outside of the cluster.
	WebhookURL string
	// WebhookCertDir holds tls.crt and tls.key if somebody else makes them.
	WebhookCertDir string
	// WebhookClientCAFile holds the authorities, as PEM, of which the API server's certificate must be. Without it the
	// webhooks answer whoever reaches them.
	WebhookClientCAFile string
	// MutateNamespaces has the operator do what MutatingAdmissionPolicies do since Kubernetes 1.36.
	MutateNamespaces bool
	// AttributeExemptUsers and AttributeExemptGroups may touch protected attributes whatever the rules say.
	AttributeExemptUsers, AttributeExemptGroups []string
	// SCCExemptNamespaces are those whose pods SecurityContextConstraints say nothing about, besides kube-system and
	// the operator's.
	SCCExemptNamespaces []string
	// SCCIntersection makes constraints usable only if they are open to the requester and the pod's service account
	// both.
	SCCIntersection bool
	// SCCCallerGuardsExec has exec and attach judge the caller alone.
	SCCCallerGuardsExec bool
	// ShutdownDelay is how long the operator goes on after it was told to end, so that nobody has a connection to it
	// when it does.
	ShutdownDelay time.Duration
	// SCCPool is what namespaces are given user ids from.
	SCCPool scc.Pool
}

// readyPatience is how long the API server may take to say whether it is ready.
const readyPatience = 3 * time.Second

// Run runs the operator until some time after ctx ends, or until its leadership is lost.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	ending := ctx.Done()
	ctx = extend(ctx, options.ShutdownDelay)
	config = rest.CopyConfig(config)
	// The API server's priority and fairness is the throttle.
	config.QPS = -1
	config.UserAgent = "nstpl-operator/" + version.String()
	queues := &backoff.Queues{}
	config, err := noticingOutages(ctx, config, queues.Wake)
	if err != nil {
		return err
	}
	lease, err := newLease(config, options)
	if err != nil {
		return err
	}
	mgr, err := newManager(config, options, lease)
	if err != nil {
		return err
	}
	leader, err := leadership.NewLeader(mgr, config, lease, queues,
		&corev1.NamespaceList{}, &v1alpha1.PolicySpaceList{}, &v1alpha1.NamespaceTemplateList{})
	if err != nil {
		return err
	}
	clients, err := newClients(mgr)
	if err != nil {
		return err
	}
	chain, err := setup(ctx, mgr, leader, clients, options)
	if err != nil {
		return err
	}
	err = webhook.Setup(mgr, webhook.Options{
		Leader: leader, Clients: clients.set, Chain: chain, Address: options.WebhookAddress, URL: options.WebhookURL,
		CertDir: options.WebhookCertDir, ClientCAFile: options.WebhookClientCAFile, Ending: ending,
	})
	if err != nil {
		return fmt.Errorf("set up the webhooks: %w", err)
	}
	return mgr.Start(ctx)
}

// noticingOutages returns a configuration whose clients notice when the API server does not answer. When it answers
// again, over is called.
func noticingOutages(ctx context.Context, config *rest.Config, over func()) (*rest.Config, error) {
	plain, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	outage := backoff.NewOutage(ctx, func(ctx context.Context) error {
		err := plain.RESTClient().Get().AbsPath("/readyz").Timeout(readyPatience).Do(ctx).Error()
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil // it answers, and keeps to itself whether it is ready
		}
		return err
	}, over)
	config = rest.CopyConfig(config)
	config.Wrap(outage.Transport)
	return config, nil
}

// newLease returns nil if there is no leader election.
func newLease(config *rest.Config, options Options) (*leadership.Lease, error) {
	if !options.LeaderElect {
		return nil, nil
	}
	// A label's value has no "+".
	labels := map[string]string{v1alpha1.VersionLabel: strings.ReplaceAll(version.String(), "+", "_")}
	return leadership.NewLease(config, v1alpha1.OperatorNamespace, v1alpha1.OperatorLease, labels)
}

// extend returns a context that ends some time after ctx.
func extend(ctx context.Context, by time.Duration) context.Context {
	extended, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(by, end) })
	return extended
}

// stripNamespace is a cache.TransformFunc. It keeps managedFields only where hierarchy.MayBeInTree needs them: on the
// few namespaces that were created while nothing noted their creator.
func stripNamespace(object any) (any, error) {
	if ns, ok := object.(*corev1.Namespace); ok {
		if _, known := ns.Annotations[v1alpha1.CreatorAnnotation]; !known {
			return ns, nil
		}
	}
	return cache.TransformStripManagedFields()(object)
}

func newManager(config *rest.Config, options Options, lease *leadership.Lease) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(corev1.AddToScheme, admissionregistrationv1.AddToScheme, v1alpha1.AddToScheme)
	if err := add.AddToScheme(scheme); err != nil {
		return nil, err
	}
	own := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.WebhookName)}
	managerOptions := ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				constraint.ServiceAccount(): {Transform: constraint.IdentityOnly},
				&corev1.Namespace{}:         {Transform: stripNamespace},
				&corev1.ResourceQuota{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField,
					v1alpha1.QuotaName)},
				&admissionregistrationv1.ValidatingWebhookConfiguration{}: own,
				&admissionregistrationv1.MutatingWebhookConfiguration{}:   own,
			},
		},
		Metrics:                       metricsserver.Options{BindAddress: options.MetricsAddress},
		HealthProbeBindAddress:        options.ProbeAddress,
		LeaderElection:                options.LeaderElect,
		LeaderElectionID:              v1alpha1.OperatorLease,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leadership.Duration),
		RenewDeadline:                 new(leadership.RenewDeadline),
		RetryPeriod:                   new(leadership.RetryPeriod),
	}
	if lease != nil {
		managerOptions.LeaderElectionResourceLockInterface = lease
	}
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return nil, err
	}
	if lease != nil {
		lease.RecordTo(mgr.GetEventRecorderFor(lease.Identity())) //nolint:staticcheck // leader election knows no other recorder
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("caches", func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), 100*time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return fmt.Errorf("the first lists of namespaces and templates have not come yet")
		}
		return nil
	})
}
