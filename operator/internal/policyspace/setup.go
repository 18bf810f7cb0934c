package policyspace

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Feature is what other packages use of policy spaces.
type Feature struct {
	// Spaces computes in which policy spaces a namespace is.
	Spaces *Spaces
	// UsageQuotas reports whether the API server counts the usage of a namespace.
	UsageQuotas *UsageQuotas
	// Hierarchy, Placement, Quota and Sequencer are rows of the admission chain.
	Hierarchy, Placement, Quota, Sequencer webhook.Plugin
	// Namespaces are the rows for the limits on the number of namespaces. They come after all others, since they
	// reserve nothing for requests that another plugin denies.
	Namespaces []webhook.Plugin
}

// Options are what Setup needs.
type Options struct {
	Leader *leadership.Leader
	// Clients are those of a replica that may not lead. Admission writes with them.
	Clients  kubernetes.Interface
	Metadata metadata.Interface
	// Stored has the webhook configurations as they are stored.
	Stored *webhook.Stored
	// Namespaces is the queue of namespaces. The controllers add those that have to be reconciled again.
	Namespaces *queue.Queue
}

// Setup adds the controllers of policy spaces to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Feature, error) {
	clients := o.Clients
	members, err := newMembers(ctx, mgr.GetCache())
	if err != nil {
		return nil, fmt.Errorf("index the namespaces by policyspace: %w", err)
	}
	usageQuotas := &UsageQuotas{
		Leader: o.Leader, Quotas: o.Leader.Clientset.CoreV1(), Members: members, Namespaces: o.Namespaces,
	}
	if err := usageQuotas.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of usage quotas: %w", err)
	}
	denials := NewDenials(clients.CoreV1(), mgr.GetEventRecorder(reporting.Controller), metrics.Registry)
	if err := mgr.Add(denials); err != nil {
		return nil, err
	}
	quota, err := NewQuotaAdmission(ctx, mgr, denials)
	if err != nil {
		return nil, err
	}
	census := newCensus(o.Metadata, func(ctx context.Context) (bool, error) {
		limiting, err := limitingNamespaces(ctx, mgr.GetCache())
		return len(limiting) > 0, err
	})
	if err := mgr.Add(census); err != nil {
		return nil, err
	}
	totals := newNamespaceTotals(mgr.GetCache(), mgr.GetAPIReader(), census, &quota.changes)
	spaces := &Spaces{
		Leader: o.Leader, Members: members, Namespaces: o.Namespaces, Stored: o.Stored,
		Metrics: NewMetrics(metrics.Registry), totals: totals,
	}
	if err := spaces.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of policyspaces: %w", err)
	}
	missing := &missingSpaces{
		cached: mgr.GetCache(), live: mgr.GetAPIReader(), reviews: clients.AuthorizationV1().SubjectAccessReviews(),
	}
	hierarchy := &SpaceAdmission{
		live: mgr.GetAPIReader(), quotas: clients.CoreV1().ResourceQuotas(v1alpha1.OperatorNamespace), missing: missing,
	}
	placement := &PlacementAdmission{missing: missing}
	sequencer := &Sequencer{quota: quota}
	namespaceQuota := &NamespaceQuota{
		cached: mgr.GetCache(), live: mgr.GetAPIReader(), client: mgr.GetClient(), totals: totals, denials: denials,
		changes: &quota.changes, writing: map[string]chan struct{}{},
	}
	if err := watch.OnChange(ctx, mgr.GetCache(), &v1alpha1.PolicySpace{}, namespaceQuota.spaceChanged); err != nil {
		return nil, err
	}
	return &Feature{
		Spaces: spaces, UsageQuotas: usageQuotas,
		Hierarchy: hierarchy.Plugin(), Placement: placement.Plugin(), Quota: quota.Plugin(),
		Sequencer: sequencer.Plugin(), Namespaces: namespaceQuota.Plugins(),
	}, nil
}
