package operator

import (
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/attribute"
	"nstpl.dev/nstpl/operator/internal/constraint"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/openreports"
	"nstpl.dev/nstpl/operator/internal/policyspace"
	"nstpl.dev/nstpl/operator/internal/population"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/revisions"
	"nstpl.dev/nstpl/operator/internal/selection"
	"nstpl.dev/nstpl/operator/internal/selfservice"
	"nstpl.dev/nstpl/operator/internal/vetting"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// dependencies are what setup needs.
type dependencies struct {
	leader *leadership.Leader
	// clients may be used by replicas that do not lead.
	clients leadership.Clients
	stored  *webhook.Stored
	options Options
}

// setup adds the controllers of all features to a manager, and returns the admission chain.
func setup(ctx context.Context, mgr ctrl.Manager, d dependencies) (webhook.Chain, error) {
	leader, clients, stored, options := d.leader, d.clients, d.stored, d.options
	attributes, err := attribute.Setup(ctx, mgr, attribute.Options{
		Leader: leader, Stored: stored, Exempt: options.AttributeExempt,
	})
	if err != nil {
		return nil, err
	}
	constraints, err := constraint.Setup(ctx, mgr, constraint.Options{
		Leader: leader, Clients: clients.Clientset, Stored: stored, Flags: options.SCC,
	})
	if err != nil {
		return nil, err
	}
	namespaces := queue.New(leader.Queues)
	spaces, err := policyspace.Setup(ctx, mgr, policyspace.Options{
		Leader: leader, Clients: clients.Clientset, Metadata: clients.Metadata, Stored: stored, Namespaces: namespaces,
	})
	if err != nil {
		return nil, err
	}
	rules, err := selfservice.Setup(ctx, mgr, selfservice.Options{
		Leader: leader, Clients: clients.Clientset, Rules: attributes.RulesOfCluster, Exempt: options.ExcludeNamespaces,
		Only: options.SelfServiceOnly,
	})
	if err != nil {
		return nil, err
	}
	cached, err := population.NewStored(ctx, mgr)
	if err != nil {
		return nil, fmt.Errorf("watch the templates: %w", err)
	}
	controllerRevisions := clients.Clientset.AppsV1().ControllerRevisions(v1alpha1.OperatorNamespace)
	inForce := revisions.NewReader(controllerRevisions)
	var reports *openreports.Writer // writes nothing if it is nil
	if options.OpenReports {
		reports = openreports.NewWriter(leader.Client, leader.Metadata)
		if err := mgr.Add(reports); err != nil {
			return nil, fmt.Errorf("set up the writer of Reports: %w", err)
		}
	}
	hold, err := population.Setup(ctx, mgr, population.Options{
		Leader: leader, Clients: clients.Clientset, Metadata: clients.Metadata,
		Objects: clients.Objects, Namespaces: namespaces,
		Exclude: options.ExcludeNamespaces, Stored: cached, Revisions: inForce,
		Contributors: population.Contributors{
			Placement: spaces.Spaces, Rules: attributes, IsReady: spaces.UsageQuotas.Counted,
			Annotations: constraints.Blocks.For, AnnotationKeys: constraint.AllocationKeys, Findings: reports,
		},
	})
	if err != nil {
		return nil, err
	}
	if err := selection.Setup(mgr, leader, inForce); err != nil {
		return nil, fmt.Errorf("set up the controller of selectors: %w", err)
	}
	// Any client of the network may send a review. What follows from one must not decide what is populated.
	reviewed := revisions.NewReader(controllerRevisions)
	outlines, err := vetting.NewOutlines(ctx, mgr.GetCache(), reviewed)
	if err != nil {
		return nil, fmt.Errorf("watch the templates: %w", err)
	}
	selectors := selection.NewAdmission(selection.Options{
		ConfigMaps: clients.Clientset.CoreV1().ConfigMaps(v1alpha1.OperatorNamespace),
		Reviews:    clients.Clientset.AuthorizationV1().SubjectAccessReviews(),
		Revisions:  reviewed, SetBy: outlines.SetBy,
	})
	templates := vetting.NewAdmission(vetting.Options{
		Mapper: mgr.GetRESTMapper(), Clients: clients.Clientset, Metadata: clients.Metadata, Objects: clients.Objects,
		Outlines: outlines, Live: mgr.GetAPIReader(), Attributes: attributes, Selectors: selectors,
	})

	chain := webhook.Chain{
		hold.Plugin(),       // first: the rights by which others decide come with what it waits for
		attributes.Plugin(), // before templates, since the selectors of what it denies must not be recorded
		templates.Plugin(),
		selectors.Plugin(),
		attribute.NewRuleAdmission(clients.Clientset, attributes).Plugin(),
		spaces.Hierarchy,
		spaces.Placement,
		rules.Parents,
		rules.Namespaces,
		constraints.Mutator,
		constraints.Validator,
		spaces.Quota,
		spaces.Sequencer,
	}
	if names := slices.Concat(options.ExcludeNamespaces, options.SCC.ExemptNamespaces); len(names) > 0 {
		reviews := clients.Clientset.AuthorizationV1().SubjectAccessReviews()
		chain = append(chain, (&selfservice.ReservedNames{Names: names, Reviews: reviews}).Plugin())
	}
	chain = append(chain, spaces.Namespaces...) // after the others, since they reserve
	if options.MutateNamespaces {
		chain = append(chain, population.NewNamespaceMutators(clients.Clientset).Plugins()...)
	}
	return chain, nil
}
