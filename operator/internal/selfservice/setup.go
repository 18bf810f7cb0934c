// Package selfservice implements spec.selfService of policy spaces: which namespaces users may create there, and when
// these expire. The decisions are those of package operator/selfservice. ReservedNames says who may create namespaces
// in which templates or constraints do not apply.
package selfservice

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Options are what Setup needs.
type Options struct {
	Leader *leadership.Leader
	// Clients are those of a replica that may not lead. Admission asks with them.
	Clients kubernetes.Interface
	// Rules returns the rules on protected attributes.
	Rules func(context.Context) (*attributes.Rules, error)
	// Exempt lists the namespaces that never expire.
	Exempt []string
	// Only makes users create namespaces only where policy spaces have rules.
	Only bool
}

// Plugins are the rows of the admission chain.
type Plugins struct{ Namespaces, Parents webhook.Plugin }

// Setup adds the controller to a manager, and returns the rows of the admission chain.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) (*Plugins, error) {
	rules, err := newRules(ctx, mgr.GetCache())
	if err != nil {
		return nil, fmt.Errorf("watch the policyspaces: %w", err)
	}
	expiry := &Expiry{Leader: o.Leader, Rules: o.Rules, Exempt: o.Exempt}
	if err := expiry.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the controller of expiring namespaces: %w", err)
	}
	admission := &Admission{
		rules: rules, live: mgr.GetAPIReader(), reviews: o.Clients.AuthorizationV1().SubjectAccessReviews(),
		only: o.Only,
	}
	parents := &ParentAdmission{admission}
	return &Plugins{Namespaces: admission.Plugin(), Parents: parents.Plugin()}, nil
}
