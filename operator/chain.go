package operator

import (
	"context"
	"slices"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/internal/attribute"
	"nstpl.dev/nstpl/operator/internal/constraint"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/policyspace"
	"nstpl.dev/nstpl/operator/internal/population"
	"nstpl.dev/nstpl/operator/internal/population/queue"
	"nstpl.dev/nstpl/operator/internal/vetting"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// setup adds the controllers of all features to a manager, and returns the admission chain.
func setup(
	ctx context.Context, mgr ctrl.Manager, leader *leadership.Leader, clients clients, options Options,
) (webhook.Chain, error) {
	attributes, err := attribute.Setup(ctx, mgr, leader,
		attribute.Exempt{Users: options.AttributeExemptUsers, Groups: options.AttributeExemptGroups})
	if err != nil {
		return nil, err
	}
	constraints, err := constraint.Setup(ctx, mgr, leader, clients.set, constraint.Options{
		ExemptNamespaces: slices.Concat(scc.ExemptNamespaces, options.SCCExemptNamespaces),
		Intersection:     options.SCCIntersection, CallerGuardsExec: options.SCCCallerGuardsExec, Pool: options.SCCPool,
	})
	if err != nil {
		return nil, err
	}
	namespaces := queue.New(leader.Queues)
	spaces, err := policyspace.Setup(ctx, mgr, leader, clients.set, namespaces)
	if err != nil {
		return nil, err
	}
	hold, err := population.Setup(ctx, mgr, population.Options{
		Leader: leader, Clients: clients.set, Metadata: clients.metadata, Namespaces: namespaces,
		Spaces: spaces.Spaces, UsageQuotas: spaces.UsageQuotas, Exclude: options.ExcludeNamespaces,
	})
	if err != nil {
		return nil, err
	}
	templates := vetting.NewAdmission(vetting.Options{
		Mapper: mgr.GetRESTMapper(), Clients: clients.set, Metadata: clients.metadata, Templates: mgr.GetClient(),
		Live: mgr.GetAPIReader(), Attributes: attributes,
	})
	constraintMutator, constraintValidator := constraints.Plugins()

	chain := webhook.Chain{
		templates.Plugin(),
		attribute.NewRuleAdmission(clients.set, attributes).Plugin(),
		spaces.Hierarchy,
		attributes.Plugin(),
		constraintMutator,
		constraintValidator,
		spaces.Quota,
		spaces.Sequencer,
		hold.Plugin(), // last, because it waits, and a request that another plugin denies need not wait
	}
	if options.MutateNamespaces {
		chain = append(chain, population.NewNamespaceMutators(mgr, clients.set).Plugins()...)
	}
	return chain, nil
}

// clients may be used by replicas that do not lead.
type clients struct {
	set      kubernetes.Interface
	metadata metadata.Interface
}

func newClients(mgr ctrl.Manager) (c clients, err error) {
	config, connections := mgr.GetConfig(), mgr.GetHTTPClient()
	if c.set, err = kubernetes.NewForConfigAndClient(config, connections); err != nil {
		return c, err
	}
	c.metadata, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), connections)
	return c, err
}
