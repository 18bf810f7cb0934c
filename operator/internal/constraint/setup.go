package constraint

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// Options are what Setup needs.
type Options struct {
	Leader *leadership.Leader
	// Clients are those of a replica that may not lead.
	Clients kubernetes.Interface
	// Stored has the webhook configurations as they are stored.
	Stored *webhook.Stored
	Flags  Flags
}

// Flags are the flags about SecurityContextConstraints.
type Flags struct {
	// ExemptNamespaces are the namespaces, in addition to scc.ExemptNamespaces, to whose pods constraints do not apply.
	ExemptNamespaces []string
	// Intersection makes a constraint usable only if both the requester and the pod's service account may use it.
	Intersection bool
	// CallerGuardsExec makes the decision about exec and attach depend on the rights of the caller only. Otherwise the
	// rights of the pod's service account suffice, too.
	CallerGuardsExec bool
	// Pool contains the blocks of user IDs and the SELinux levels that namespaces are given.
	Pool scc.Pool
}

// Feature is what other packages use of SecurityContextConstraints.
type Feature struct {
	// Mutator and Validator are rows of the admission chain.
	Mutator, Validator webhook.Plugin
	// Blocks gives user IDs to new namespaces.
	Blocks *Blocks
}

// Setup adds the controllers of SecurityContextConstraints to a manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Feature, error) {
	o.Flags.ExemptNamespaces = slices.Concat(scc.ExemptNamespaces, o.Flags.ExemptNamespaces)
	grants := NewGrants(o.Clients.AuthorizationV1().SubjectAccessReviews(), mgr.GetAPIReader())
	admission, err := newAdmission(ctx, mgr, grants, o.Flags)
	if err != nil {
		return nil, err
	}
	namespaces, err := watch.NewNamespaceLister(ctx, mgr.GetCache())
	if err != nil {
		return nil, fmt.Errorf("watch the namespaces: %w", err)
	}
	blocks := &Blocks{
		Namespaces: namespaces, ConfigMaps: o.Leader.Clientset.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace),
		Pool: o.Flags.Pool, Exempt: o.Flags.ExemptNamespaces, Constraints: admission.constraints,
	}
	accounts := newAccountWatch(mgr.GetCache())
	allocations := &Allocations{Leader: o.Leader, Blocks: blocks}
	accountIDs := &AccountIDs{
		Leader: o.Leader, Accounts: accounts, Exempt: o.Flags.ExemptNamespaces, Constraints: admission.constraints,
	}
	references := &References{Leader: o.Leader, Accounts: accounts}
	statuses := &Statuses{Leader: o.Leader, Stored: o.Stored, Blocks: blocks, Constraints: admission.constraints}
	if err := errors.Join(allocations.SetupWithManager(mgr), accountIDs.SetupWithManager(mgr),
		references.SetupWithManager(mgr), statuses.SetupWithManager(mgr)); err != nil {
		return nil, fmt.Errorf("set up the controllers of constraints: %w", err)
	}
	mutator, validator := admission.plugins()
	return &Feature{Mutator: mutator, Validator: validator, Blocks: blocks}, nil
}
