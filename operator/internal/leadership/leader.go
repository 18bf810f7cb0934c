package leadership

import (
	"net/http"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// Clients send each request to the API server, since they have no cache.
type Clients struct {
	Clientset kubernetes.Interface
	Metadata  metadata.Interface
	Objects   dynamic.Interface
}

// NewClients returns clients that share connections.
func NewClients(config *rest.Config, connections *http.Client) (c Clients, err error) {
	if c.Clientset, err = kubernetes.NewForConfigAndClient(config, connections); err != nil {
		return c, err
	}
	if c.Metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), connections); err != nil {
		return c, err
	}
	c.Objects, err = dynamic.NewForConfigAndClient(dynamic.ConfigFor(config), connections)
	return c, err
}

// Leader holds what the controllers of the leader write with. Its clients write nothing while another replica may lead.
type Leader struct {
	// Client reads from the cache, Live from the API server.
	Client client.Client
	Live   client.Reader
	Clients
	Recorder events.EventRecorder
	// Caches delay the first reconciliation until the cache is as new as the leadership.
	Caches *Caches
	// Queues make the controllers' queues.
	Queues *backoff.Queues
}

// Options are what NewLeader needs.
type Options struct {
	Config *rest.Config
	// Lease is nil without leader election.
	Lease  *Lease
	Queues *backoff.Queues
	// Lists are empty lists. The leader waits until its cache is up to date for their kinds.
	Lists []client.ObjectList
}

// NewLeader returns the clients of a manager whose leadership depends on a lease.
func NewLeader(mgr ctrl.Manager, o Options) (*Leader, error) {
	config, connections := o.Config, o.Lease.Client(mgr.GetHTTPClient())
	cached, err := client.New(config, client.Options{
		HTTPClient: connections, Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: mgr.GetCache()},
	})
	if err != nil {
		return nil, err
	}
	clients, err := NewClients(config, connections)
	if err != nil {
		return nil, err
	}
	return &Leader{
		Client: cached, Live: mgr.GetAPIReader(), Clients: clients, Queues: o.Queues,
		Recorder: mgr.GetEventRecorder(reporting.Controller),
		Caches:   NewCaches(cached, mgr.GetAPIReader(), o.Lists...),
	}, nil
}
