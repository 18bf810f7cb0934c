package policyspace

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/population/queue"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Feature is what other features use of policy spaces.
type Feature struct {
	// Spaces knows in which policy spaces namespaces are.
	Spaces *Spaces
	// UsageQuotas keep the ResourceQuotas in which the API server counts.
	UsageQuotas *UsageQuotas
	// Hierarchy, Quota and Sequencer are rows of the admission chain.
	Hierarchy, Quota, Sequencer webhook.Plugin
}

// Setup adds the controllers of PolicySpaces to a manager. Namespaces that are to be populated again are added to
// namespaces. The clients are those of a replica that may not lead.
func Setup(
	ctx context.Context, mgr ctrl.Manager, leader *leadership.Leader, clients kubernetes.Interface,
	namespaces *queue.Queue,
) (*Feature, error) {
	spaceMetrics, err := NewMetrics(metrics.Registry)
	if err != nil {
		return nil, err
	}
	spaces := &Spaces{
		Client: leader.Client, Live: mgr.GetAPIReader(), Queue: namespaces, Metrics: spaceMetrics,
		Caches: leader.Caches, Queues: leader.Queues,
	}
	if err := spaces.SetupWithManager(ctx, mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of policyspaces: %w", err)
	}
	usageQuotas := &UsageQuotas{
		Client: leader.Client, Queue: namespaces, Caches: leader.Caches, Queues: leader.Queues,
	}
	if err := usageQuotas.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of quotas: %w", err)
	}
	refusals, err := NewRefusals(clients.CoreV1(), mgr.GetEventRecorder(reporting.Controller), metrics.Registry)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(refusals); err != nil {
		return nil, err
	}
	quota, err := NewQuotaAdmission(ctx, mgr.GetCache(), mgr.GetAPIReader(), mgr.GetClient(), refusals)
	if err != nil {
		return nil, err
	}
	hierarchy := NewSpaceAdmission(mgr.GetAPIReader(), clients.CoreV1().ResourceQuotas(v1alpha1.OperatorNamespace))
	return &Feature{
		Spaces: spaces, UsageQuotas: usageQuotas,
		Hierarchy: hierarchy.Plugin(), Quota: quota.Plugin(), Sequencer: NewSequencer(quota).Plugin(),
	}, nil
}
