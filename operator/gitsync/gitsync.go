// Package gitsync runs nstpl-sync, the program with which a cluster follows trees of policies in Git.
package gitsync

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/repository"
	"nstpl.dev/nstpl/operator/internal/repository/hint"
	"nstpl.dev/nstpl/operator/version"
)

// Options are the options of nstpl-sync.
type Options struct {
	// LeaderElect elects a leader, so that only one of several replicas writes to the cluster.
	LeaderElect bool
	// MetricsAddress and ProbeAddress are addresses of endpoints. "0" disables one.
	MetricsAddress, ProbeAddress string
	// HintAddress is the address at which push hints are taken. "0" takes none.
	HintAddress string
	// Dir is the directory for fetched commits.
	Dir string
}

// leaseName is the name of the Lease of the leader election.
const leaseName = "nstpl-sync"

// recorder is the name under which Events are recorded.
const recorder = "nstpl-sync"

// Run follows all PolicyRepositories until ctx is done.
func Run(ctx context.Context, config *rest.Config, options Options) error {
	config = rest.CopyConfig(config)
	// API Priority and Fairness of the API server limits the requests.
	config.QPS = -1
	config.UserAgent = "nstpl-sync/" + version.String()
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(corev1.AddToScheme, v1alpha1.AddToScheme)
	if err := add.AddToScheme(scheme); err != nil {
		return err
	}
	var lease *leadership.Lease
	if options.LeaderElect {
		var err error
		if lease, err = leadership.NewLease(config, leaseName, nil); err != nil {
			return err
		}
	}
	mgr, err := newManager(config, scheme, options, lease)
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	guarded, leader, err := clientsOfLeader(mgr, lease)
	if err != nil {
		return err
	}
	repositories := &repository.Repositories{
		Client: leader, Live: mgr.GetAPIReader(),
		Cluster:  &repository.Cluster{Cached: mgr.GetClient(), Informers: mgr.GetCache(), Config: guarded},
		Recorder: mgr.GetEventRecorder(recorder),
		Metrics:  repository.NewMetrics(metrics.Registry, mgr.GetClient()),
		Dir:      options.Dir,
	}
	if err := repositories.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the controller: %w", err)
	}
	if options.HintAddress != "0" {
		if err := addHints(mgr, options.HintAddress); err != nil {
			return fmt.Errorf("set up hints: %w", err)
		}
	}
	return mgr.Start(ctx)
}

func newManager(
	config *rest.Config, scheme *runtime.Scheme, options Options, lease *leadership.Lease,
) (ctrl.Manager, error) {
	managerOptions := ctrl.Options{
		Scheme:                 scheme,
		Cache:                  cache.Options{DefaultTransform: withoutStatus},
		Client:                 client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics:                metricsserver.Options{BindAddress: options.MetricsAddress},
		HealthProbeBindAddress: options.ProbeAddress,
	}
	lease.Elect(&managerOptions)
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return nil, err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("ping", healthz.Ping)
}

// clientsOfLeader returns a configuration, and a client that reads from the cache, with which nothing is written while
// another replica may be the leader. A nil lease means that there is no leader election.
func clientsOfLeader(mgr ctrl.Manager, lease *leadership.Lease) (*rest.Config, client.Client, error) {
	if lease == nil {
		return mgr.GetConfig(), mgr.GetClient(), nil
	}
	guarded := rest.CopyConfig(mgr.GetConfig())
	guarded.Wrap(lease.Guard)
	leader, err := client.New(guarded, client.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache(), Unstructured: true},
	})
	return guarded, leader, err
}

// addHints adds the server of push hints to a manager.
func addHints(mgr ctrl.Manager, address string) error {
	server := &hint.Server{
		Address: address, Client: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Recorder: mgr.GetEventRecorder(recorder), Results: hint.NewResults(metrics.Registry),
	}
	return server.SetupWithManager(mgr)
}

// withoutStatus is a cache.TransformFunc. It removes what the comparison of trees does not need.
func withoutStatus(object any) (any, error) {
	if content, ok := object.(*unstructured.Unstructured); ok {
		revisions, exist, _ := unstructured.NestedFieldNoCopy(content.Object, "status", "revisions")
		delete(content.Object, "status")
		if exist { // how far a rollout has come is reported
			content.Object["status"] = map[string]any{"revisions": revisions}
		}
		if content.GetKind() == "Namespace" { // trees declare only labels and annotations
			delete(content.Object, "spec")
		}
	}
	return cache.TransformStripManagedFields()(object)
}
