package population

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/objects"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/revisions"
	"nstpl.dev/nstpl/operator/internal/watch"
)

// Writes in flight at a time. The writes of a rollout and those to a new namespace share a connection and the API
// server. populate.Yield sends few of the bulkWrites together: the others are those that a webhook, say, delays.
const (
	urgentWrites = 64
	bulkWrites   = 8
)

// Options are what Setup needs.
type Options struct {
	Leader *leadership.Leader
	// Clients and Metadata are those of a replica that may not lead.
	Clients  kubernetes.Interface
	Metadata metadata.Interface
	// Objects reads the sources of templates.
	Objects    dynamic.Interface
	Namespaces *queue.Queue
	// Stored has the templates as the cache has them.
	Stored *match.Index
	// Revisions reads the revisions of templates.
	Revisions *revisions.Reader
	// Exclude names namespaces that are never populated, besides those of match.UnpopulatedReason.
	Exclude []string
	// Contributors are the features that take part.
	Contributors Contributors
}

// Setup adds the controllers that populate namespaces to a manager, and returns the validator that holds requests.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Hold, error) {
	populationMetrics := NewMetrics(metrics.Registry)
	requests := o.Leader.Queues.NewRetrying("namespacetemplate", backoff.FirstRetry)
	// Many namespaces change at a time, so a template's status is written a little later. A rollout goes on at once.
	results := NewResults(func(template string, isSettled bool) {
		after := statusDelay
		if isSettled {
			after = 0
		}
		requests.AddWithOpts(priorityqueue.AddOpts{After: after},
			reconcile.Request{NamespacedName: client.ObjectKey{Name: template}})
	})
	rediscover := func() (meta.RESTMapper, error) {
		return apiutil.NewDynamicRESTMapper(mgr.GetConfig(), mgr.GetHTTPClient())
	}
	recorder := mgr.GetEventRecorder(reporting.Controller)
	cached, err := watch.NewNamespaceLister(ctx, mgr.GetCache())
	if err != nil {
		return nil, fmt.Errorf("watch the namespaces: %w", err)
	}
	index := match.NewIndex()
	templates := &Templates{
		Client: o.Leader.Client, Namespaces: cached, Cache: render.NewCache(),
		Values: &Values{Rules: o.Contributors.Rules}, Results: results, Requests: requests, Queue: o.Namespaces,
		Metrics: populationMetrics, Caches: o.Leader.Caches,
		Acceptance: &Acceptance{Live: mgr.GetAPIReader(), Index: index, Stored: o.Stored},
	}
	templates.Objects = objects.New(ctx, objects.Options{
		Client: o.Metadata, Mapper: mgr.GetRESTMapper(), Rediscover: rediscover,
		Reviews: o.Clients.AuthorizationV1().SelfSubjectAccessReviews(),
		Changed: func(namespace string) { o.Namespaces.Enqueue(queue.Changed, 0, namespace) },
		Turned:  templates.queueDeclaring,
	})
	templates.History = &History{
		Live: mgr.GetAPIReader(), Specs: o.Revisions, Index: index,
		Revisions: o.Leader.Clientset.AppsV1().ControllerRevisions(v1alpha1.OperatorNamespace),
	}
	templates.Remains = &Remains{
		Client: o.Leader.Client, Objects: templates.Objects, Index: index, Exclude: o.Exclude, Passes: &passes{},
	}
	templates.Rollouts = &Rollouts{
		Namespaces: cached, Index: index, Objects: templates.Objects, Results: results, Remains: templates.Remains,
		Queue: o.Namespaces, Exclude: o.Exclude, Metrics: populationMetrics, Recorder: recorder,
	}
	templates.Sources = templates.newSources(ctx, o, mgr.GetRESTMapper())
	templates.Statuses = &Statuses{
		Client: o.Leader.Client, Stored: o.Stored, Results: results, Rollouts: templates.Rollouts,
		Remains: templates.Remains, Sources: templates.Sources,
	}
	if err := templates.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of templates: %w", err)
	}
	templates.followRules(ctx)
	yield, mapper := populate.NewYield(), meta.ToRESTMapperWithContext(mgr.GetRESTMapper())
	namespaces := &Namespaces{
		Client: o.Leader.Client, Live: mgr.GetAPIReader(), Templates: templates, Objects: templates.Objects,
		Urgent:  populate.NewApplier(o.Leader.Metadata, o.Leader.Objects, mapper, urgentWrites, nil),
		Bulk:    populate.NewApplier(o.Leader.Metadata, o.Leader.Objects, mapper, bulkWrites, yield),
		Yield:   yield,
		Results: results, Queue: o.Namespaces, Recorder: recorder,
		Events: o.Leader.Clientset.EventsV1(), Metrics: populationMetrics,
		Exclude: o.Exclude, Caches: o.Leader.Caches, Contributors: o.Contributors,
		Fights: backoff.NewFights[string, populate.Subject](),
	}
	if err := namespaces.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of namespaces: %w", err)
	}
	initializers := &Initializers{Leader: o.Leader, Queue: o.Namespaces}
	if err := initializers.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of initializers: %w", err)
	}
	return NewHold(ctx, mgr.GetCache(), o.Clients.AuthorizationV1().SubjectAccessReviews())
}

// NewNamespaceMutators returns what API servers before Kubernetes 1.36 need.
func NewNamespaceMutators(clients kubernetes.Interface) NamespaceMutators {
	return NamespaceMutators{
		ConfigMaps: clients.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace),
		Reviews:    clients.AuthorizationV1().SubjectAccessReviews(),
	}
}
