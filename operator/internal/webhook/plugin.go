package webhook

import (
	"context"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Plugin is a row of the chain: what is asked, about which requests, and what becomes of those that can't be decided.
// The webhook configurations are made of these rows. Selectors and match conditions only spare the API server calls: a
// plugin decides rightly about every request that its rules match, since it is also asked when another row's webhook is
// called.
type Plugin struct {
	Name string
	// Mutator or Validator, one of them.
	Mutator   Mutator
	Validator Validator

	Rules             []admissionregistrationv1.RuleWithOperations
	NamespaceSelector *metav1.LabelSelector
	MatchConditions   []admissionregistrationv1.MatchCondition
	FailurePolicy     admissionregistrationv1.FailurePolicyType
	// TimeoutSeconds bounds a call, 1 to 30.
	TimeoutSeconds int32
	// Webhooks, if set, returns what the API server is to ask about at the moment, in place of all that the Rules
	// match: nothing as long as nothing is in use.
	Webhooks func(ctx context.Context) ([]Webhook, error)
	// Changes, if set, notify when Webhooks may return something else.
	Changes *Changes
}

// Webhook is a set of requests that the API server asks about.
type Webhook struct {
	Rules           []admissionregistrationv1.RuleWithOperations
	MatchConditions []admissionregistrationv1.MatchCondition
	// Revision comes back with every request of a validating webhook, so that the plugin knows what the API server goes
	// by. Empty is none.
	Revision string
}

// webhooks returns what the API server is to ask about.
func (p *Plugin) webhooks(ctx context.Context) ([]Webhook, error) {
	if p.Webhooks == nil {
		return []Webhook{{Rules: p.Rules, MatchConditions: p.MatchConditions}}, nil
	}
	return p.Webhooks(ctx)
}

// Chain holds the plugins in the order in which mutators change a request.
type Chain []Plugin

// MutatorFunc is a Mutator.
type MutatorFunc func(ctx context.Context, request *Request) error

// Mutate calls the function.
func (f MutatorFunc) Mutate(ctx context.Context, request *Request) error { return f(ctx, request) }

// allObjects matches all objects that webhooks are called for, and their subresources.
func AllObjects(operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return Rule("*", "*", admissionregistrationv1.AllScopes, []string{"*/*"}, operations...)
}

func Rule(group, version string, scope admissionregistrationv1.ScopeType, resources []string,
	operations ...admissionregistrationv1.OperationType,
) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources, Scope: &scope,
		},
	}
}

// handles tells whether one of a plugin's rules matches a request, as the API server reads rules.
func (p *Plugin) handles(request *Request) bool {
	return slices.ContainsFunc(p.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return oneOf(r.Operations, admissionregistrationv1.OperationType(request.Operation)) &&
			oneOf(r.APIGroups, request.Resource.Group) && oneOf(r.APIVersions, request.Resource.Version) &&
			inScope(*r.Scope, request) &&
			slices.ContainsFunc(r.Resources, func(pattern string) bool {
				return matchesResource(pattern, request.Resource.Resource, request.SubResource)
			})
	})
}

func oneOf[T ~string](values []T, value T) bool {
	return slices.Contains(values, value) || slices.Contains(values, "*")
}

// inScope counts namespaces among what is not in a namespace, though the API server calls each its own.
func inScope(scope admissionregistrationv1.ScopeType, request *Request) bool {
	namespaced := request.Namespace != "" &&
		(request.Resource.Group != corev1.GroupName || request.Resource.Resource != "namespaces")
	return scope == admissionregistrationv1.AllScopes ||
		namespaced == (scope == admissionregistrationv1.NamespacedScope)
}

func matchesResource(pattern, resource, subresource string) bool {
	wanted, wantedSub, _ := strings.Cut(pattern, "/")
	return (wanted == "*" || wanted == resource) && (wantedSub == subresource || wantedSub == "*")
}
