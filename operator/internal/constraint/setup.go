package constraint

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/scc"
)

// Options decide where constraints apply, and how strictly.
type Options struct {
	// ExemptNamespaces are the namespaces to whose pods constraints do not apply.
	ExemptNamespaces []string
	// Intersection makes a constraint usable only if both the requester and the pod's service account may use it.
	Intersection bool
	// CallerGuardsExec decides about exec and attach by the rights of the caller alone, without the pod's service
	// account.
	CallerGuardsExec bool
	// Pool is the range of user IDs that namespaces are given blocks of.
	Pool scc.Pool
}

// Setup adds the controllers of SecurityContextConstraints to a manager, and returns the plugins. The clients are those
// of a replica that may not lead.
func Setup(
	ctx context.Context, mgr ctrl.Manager, leader *leadership.Leader, clients kubernetes.Interface, options Options,
) (*Admission, error) {
	grants := NewGrants(clients.AuthorizationV1().SubjectAccessReviews(), mgr.GetAPIReader())
	admission, err := newAdmission(ctx, mgr.GetCache(), mgr.GetAPIReader(), grants, options)
	if err != nil {
		return nil, err
	}
	allocations := &Allocations{
		Client: leader.Client, ConfigMaps: leader.Clientset.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace),
		Recorder: mgr.GetEventRecorder(reporting.Controller), Pool: options.Pool, Exempt: options.ExemptNamespaces,
		Constraints: admission.constraints, Caches: leader.Caches, Queues: leader.Queues,
	}
	if err := allocations.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of allocations: %w", err)
	}
	references := &References{
		Client: leader.Client, Live: mgr.GetAPIReader(), Cache: mgr.GetCache(),
		Recorder: mgr.GetEventRecorder(reporting.Controller), Caches: leader.Caches, Queues: leader.Queues,
	}
	if err := references.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of references: %w", err)
	}
	return admission, nil
}
