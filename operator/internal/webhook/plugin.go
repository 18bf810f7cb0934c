package webhook

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Plugin is a row of the chain. The webhook configurations are generated from these rows. Selectors and match
// conditions only save calls: a plugin must decide correctly about every request that its Rules match, because it is
// also called for requests that the API server sends because of another plugin's webhook.
type Plugin struct {
	Name string
	// Exactly one of Mutator and Validator is set.
	Mutator   Mutator
	Validator Validator

	Rules             []admissionregistrationv1.RuleWithOperations
	NamespaceSelector *metav1.LabelSelector
	// ObjectSelector matches if it selects the object or the old object.
	ObjectSelector  *metav1.LabelSelector
	MatchConditions []admissionregistrationv1.MatchCondition
	// Configuration is the name of the ValidatingWebhookConfiguration with the webhooks of a Validator, or empty for
	// v1alpha1.WebhookName. When one webhook of a configuration changes, the API server compiles the match conditions
	// of all its webhooks again, and all requests that they match wait. So a plugin has a configuration of its own if
	// its webhooks change with the objects of users.
	Configuration string
	// DecidesFirst says that the validators after this one are not asked unless it allows the request.
	DecidesFirst bool
	// FailurePolicy decides about requests that the plugin cannot decide about.
	FailurePolicy admissionregistrationv1.FailurePolicyType
	// TimeoutSeconds is the longest time that the API server waits for an answer, from 1 to 30.
	TimeoutSeconds int32
	// Webhooks, if set, returns the webhooks that the plugin needs at the moment. It returns none while nothing uses
	// the feature. Otherwise the plugin has one webhook with all of its Rules and MatchConditions.
	Webhooks func(ctx context.Context) ([]Webhook, error)
	// Label, if not empty, is the key of a label that the MutatingWebhookConfiguration has while it has webhooks of the
	// plugin. An admission policy whose parameter it selects costs nothing while nothing uses the feature.
	Label string
	// Changes, if set, notifies when the result of Webhooks may have changed.
	Changes *Changes
}

// Webhook is a set of requests that the API server sends to a plugin.
type Webhook struct {
	Rules           []admissionregistrationv1.RuleWithOperations
	MatchConditions []admissionregistrationv1.MatchCondition
	// Revision, if not empty, is part of the webhook's URL. Request.Revision contains it, so that the plugin knows
	// which version of the webhook the API server used.
	Revision string
}

// webhooks returns the webhooks that the plugin needs at the moment.
func (p *Plugin) webhooks(ctx context.Context) ([]Webhook, error) {
	if p.Webhooks == nil {
		return []Webhook{{Rules: p.Rules, MatchConditions: p.MatchConditions}}, nil
	}
	return p.Webhooks(ctx)
}

// configuration returns the name of the ValidatingWebhookConfiguration with the webhooks of a Validator.
func (p *Plugin) configuration() string {
	return cmp.Or(p.Configuration, v1alpha1.WebhookName)
}

// path returns the URL path of a webhook of the plugin at an endpoint.
func (p *Plugin) path(endpoint string, w Webhook) string {
	if w.Revision == "" {
		return endpoint
	}
	return path.Join(endpoint, p.Name, w.Revision)
}

// HasRevision reports whether a webhook of a plugin has a revision in its URL.
func HasRevision(c admissionregistrationv1.WebhookClientConfig, plugin, revision string) bool {
	suffix := path.Join("/", plugin, revision)
	return c.Service != nil && c.Service.Path != nil && strings.HasSuffix(*c.Service.Path, suffix) ||
		c.URL != nil && strings.HasSuffix(*c.URL, suffix)
}

// webhookName returns the name of the plugin's webhook with an index. The names of all but the first are numbered.
func (p *Plugin) webhookName(index int) string {
	name := p.Name
	if index > 0 {
		name += "-" + strconv.Itoa(index+1)
	}
	return FullName(name)
}

// FullName returns the name of a webhook with the API group, such as quota.policy.nstpl.dev for the first webhook of
// the plugin quota.
func FullName(short string) string { return short + "." + v1alpha1.GroupVersion.Group }

// AllObjects returns a rule that matches all resources for which the API server calls webhooks, and their subresources.
func AllObjects(operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return Rule("*", "*", admissionregistrationv1.AllScopes, []string{"*/*"}, operations...)
}

// Rule returns a rule that matches resources of one API group and version.
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

// handles reports whether one of the plugin's rules matches a request. It reads rules as the API server does.
func (p *Plugin) handles(request *Request) bool {
	attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, request.Namespace, request.Name,
		schema.GroupVersionResource(request.Resource), request.SubResource, admission.Operation(request.Operation),
		nil, false, nil)
	return slices.ContainsFunc(p.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		matcher := rules.Matcher{Rule: rule, Attr: attributes}
		return matcher.Matches()
	})
}
