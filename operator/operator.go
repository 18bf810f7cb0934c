package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	"nstpl.dev/nstpl/operator/engine/reduce"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/constraint"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/served"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/version"
)

// readyzTimeout is how long the API server may take to answer /readyz.
const readyzTimeout = 3 * time.Second

// Run runs the operator until ShutdownDelay after ctx is done, or until it loses its leadership.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	ending := ctx.Done()
	ctx = extend(ctx, options.ShutdownDelay)
	config = rest.CopyConfig(config)
	// API Priority and Fairness of the API server limits the requests.
	config.QPS = -1
	config.UserAgent = "nstpl-operator/" + version.String()
	// Warnings of the API server and of its webhooks can quote objects, also Secrets, and would be logged by default.
	config.WarningHandler = rest.NoWarnings{}
	queues := &backoff.Queues{}
	config, err := withOutageDetection(ctx, config, queues.Wake)
	if err != nil {
		return err
	}
	lease, err := newLease(config, options)
	if err != nil {
		return err
	}
	mgr, err := newManager(ctx, config, options, lease)
	if err != nil {
		return err
	}
	leader, err := leadership.NewLeader(mgr, leadership.Options{
		Config: config, Lease: lease, Queues: queues,
		Lists: []client.ObjectList{
			&corev1.NamespaceList{}, &v1alpha1.PolicySpaceList{}, &v1alpha1.NamespaceTemplateList{},
			&v1alpha1.NamespaceInitializationConfigurationList{}, &v1alpha1.TemplateExemptionList{},
			&v1alpha1.ClusterProtectedAttributeList{}, &v1alpha1.ProtectedAttributeList{},
			&v1alpha1.SecurityContextConstraintsList{},
		},
	})
	if err != nil {
		return err
	}
	clients, err := leadership.NewClients(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	stored, err := webhook.NewStored(mgr, clients.Clientset.CoordinationV1().Leases(v1alpha1.OperatorNamespace))
	if err != nil {
		return err
	}
	chain, err := setup(ctx, mgr, dependencies{leader: leader, clients: clients, stored: stored, options: options})
	if err != nil {
		return err
	}
	err = webhook.Setup(mgr, webhook.Options{
		Leader: leader, Clients: clients.Clientset, Stored: stored, Chain: chain,
		Flags: options.Webhook, Ending: ending,
	})
	if err != nil {
		return fmt.Errorf("set up the webhooks: %w", err)
	}
	return mgr.Start(ctx)
}

// withOutageDetection returns a configuration whose clients detect that the API server does not answer. When it answers
// again, over is called.
func withOutageDetection(ctx context.Context, config *rest.Config, over func()) (*rest.Config, error) {
	plain, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	outage := backoff.NewOutage(ctx, func(ctx context.Context) error {
		err := plain.RESTClient().Get().AbsPath("/readyz").Timeout(readyzTimeout).Do(ctx).Error()
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil // the API server answers, and /readyz is not served to the operator
		}
		return err
	}, over)
	config = rest.CopyConfig(config)
	config.Wrap(outage.Transport)
	return config, nil
}

// newLease returns the lease of the leader election, or nil if it is disabled.
func newLease(config *rest.Config, options Options) (*leadership.Lease, error) {
	if !options.LeaderElect {
		return nil, nil
	}
	labels := map[string]string{v1alpha1.VersionLabel: version.Label()}
	return leadership.NewLease(config, v1alpha1.OperatorLease, labels)
}

// extend returns a context that is canceled a duration after ctx is done.
func extend(ctx context.Context, by time.Duration) context.Context {
	extended, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(by, end) })
	return extended
}

// cacheOptions restricts the cache to the objects and fields that the operator needs.
func cacheOptions(namespaces, templates *watch.Kept) cache.Options {
	own := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.WebhookName)}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			constraint.ServiceAccount():   {Transform: constraint.IdentityOnly},
			&corev1.Namespace{}:           {Transform: namespaces.Transform},
			&v1alpha1.NamespaceTemplate{}: {Transform: templates.Transform},
			&corev1.ResourceQuota{}: {
				Field: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.QuotaName),
			},
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{v1alpha1.OperatorNamespace: {
				FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.SelectorsConfigMap),
			}}},
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: own,
			&admissionregistrationv1.MutatingWebhookConfiguration{}:   own,
		},
	}
}

func newManager(
	ctx context.Context, config *rest.Config, options Options, lease *leadership.Lease,
) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(corev1.AddToScheme, admissionregistrationv1.AddToScheme, v1alpha1.AddToScheme)
	if err := add.AddToScheme(scheme); err != nil {
		return nil, err
	}
	namespaces, templates := &watch.Kept{Reduce: reduce.Namespace}, &watch.Kept{Reduce: reduce.Template}
	managerOptions := ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cacheOptions(namespaces, templates),
		Metrics:                metricsserver.Options{BindAddress: options.MetricsAddress},
		HealthProbeBindAddress: options.ProbeAddress,
		MapperProvider:         served.NewMapper,
	}
	lease.Elect(&managerOptions)
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(namespaces.Follow(ctx, mgr.GetCache(), &corev1.Namespace{}),
		templates.Follow(ctx, mgr.GetCache(), &v1alpha1.NamespaceTemplate{})); err != nil {
		return nil, err
	}
	if lease != nil {
		lease.RecordTo(mgr.GetEventRecorderFor(lease.Identity())) //nolint:staticcheck // leader election needs this type of recorder
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("caches", func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), 100*time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New(
				"caches not synced: the first lists of namespaces, namespacetemplates and other objects are incomplete")
		}
		return nil
	})
}
