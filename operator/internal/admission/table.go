package admission

import (
	"context"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Plugin is a row of the table: what is asked, about which requests, and what becomes of those that can't be decided.
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

// Table holds the plugins in the order in which mutators change a request.
type Table []Plugin

// NewTable returns the plugins that always run.
func NewTable(
	template *Template, rules *AttributeRules, hierarchy *Hierarchy, attributes *Attributes, scc *SCC, quota *Quota,
	turns *Turns, hold *Hold,
) Table {
	pods := func(operation admissionregistrationv1.OperationType,
		resources ...string) admissionregistrationv1.RuleWithOperations {
		return rule("", "v1", admissionregistrationv1.NamespacedScope, resources, operation)
	}
	written := []admissionregistrationv1.RuleWithOperations{
		pods(admissionregistrationv1.Create, "pods"),
		pods(admissionregistrationv1.Update, "pods", "pods/ephemeralcontainers", "pods/resize"),
	}
	judged := slices.Concat(written,
		[]admissionregistrationv1.RuleWithOperations{pods(admissionregistrationv1.Connect, "pods/exec", "pods/attach")})
	return Table{
		{
			Name: "template", Validator: template,
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, admissionregistrationv1.ClusterScope,
					[]string{v1alpha1.NamespaceTemplates.Resource},
					admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
			},
			MatchConditions: templateConditions(),
			FailurePolicy:   admissionregistrationv1.Fail, // a template grants rights
			TimeoutSeconds:  10,
		},
		{
			Name: "attribute-rules", Validator: rules,
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, admissionregistrationv1.AllScopes,
					[]string{v1alpha1.ProtectedAttributes.Resource, v1alpha1.ClusterProtectedAttributes.Resource},
					admissionregistrationv1.Create, admissionregistrationv1.Update),
			},
			FailurePolicy:  admissionregistrationv1.Fail, // a rule opens what another closes
			TimeoutSeconds: 10,
		},
		{
			Name: "hierarchy", Validator: hierarchy,
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, admissionregistrationv1.ClusterScope,
					[]string{v1alpha1.PolicySpaces.Resource}, admissionregistrationv1.Create,
					admissionregistrationv1.Update),
			},
			FailurePolicy:  admissionregistrationv1.Ignore, // what it refuses does nothing, and the status says so
			TimeoutSeconds: 5,
		},
		{
			Name: "attributes", Validator: attributes,
			Rules: []admissionregistrationv1.RuleWithOperations{
				allObjects(admissionregistrationv1.Create, admissionregistrationv1.Update,
					admissionregistrationv1.Delete),
			},
			FailurePolicy:  admissionregistrationv1.Fail, // policies go by the attributes
			TimeoutSeconds: 10,
			Webhooks:       attributes.Webhooks,
		},
		{
			Name: "scc", Mutator: scc, Rules: written, NamespaceSelector: scc.NamespaceSelector(),
			FailurePolicy:  admissionregistrationv1.Fail, // a pod could be root
			TimeoutSeconds: 15, Webhooks: scc.Webhooks(written),
		},
		{
			Name: "scc", Validator: scc, Rules: judged, NamespaceSelector: scc.NamespaceSelector(),
			FailurePolicy:  admissionregistrationv1.Fail, // a pod could be root
			TimeoutSeconds: 15, Webhooks: scc.Webhooks(judged),
		},
		{
			Name: "quota", Validator: quota,
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule("", "v1", admissionregistrationv1.NamespacedScope, []string{"resourcequotas/status"},
					admissionregistrationv1.Update),
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "counts-for-policyspaces",
				Expression: "request.name == '" + v1alpha1.QuotaName + "' && request.userInfo.username == '" +
					apiServer + "'",
			}},
			FailurePolicy:  admissionregistrationv1.Fail, // more would be used than may be
			TimeoutSeconds: 8,                            // the API server waits for 10 s
		},
		{
			Name: "quota-turn", Validator: turns, NamespaceSelector: namespacesInSpaces(),
			Rules: []admissionregistrationv1.RuleWithOperations{rule("*", "*",
				admissionregistrationv1.NamespacedScope, []string{"*"}, admissionregistrationv1.Create)},
			FailurePolicy: admissionregistrationv1.Ignore, // quota decides, and before anything is counted, hold
			// As long as the API server waits for what it writes down itself.
			TimeoutSeconds: 10, Webhooks: turns.Webhooks,
		},
		// The last, since it waits: what is refused anyway need not.
		{
			Name: "hold", Validator: hold,
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule("*", "*", admissionregistrationv1.NamespacedScope, []string{"*/*"},
					admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: v1alpha1.InitializingLabel, Operator: metav1.LabelSelectorOpExists},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{
					Name:       "a-write",
					Expression: "request.resource.resource != 'localsubjectaccessreviews'",
				},
				{
					Name: "not-of-an-initializer",
					Expression: "!authorizer.group('').resource('namespaces').namespace(request.namespace).name(request.namespace)." +
						"check('" + v1alpha1.VerbInitialize + "').allowed()",
				},
			},
			FailurePolicy:  admissionregistrationv1.Fail, // the namespace has no policies yet
			TimeoutSeconds: holdTimeoutSeconds,
		},
	}
}

// templateConditions leave out what neither populates nor prunes anything, so that templates can be disabled and
// deleted while the operator is down. Those that delete their objects then can be deleted by whoever may do everything.
func templateConditions() []admissionregistrationv1.MatchCondition {
	const (
		applies  = ".metadata.?annotations[?'" + v1alpha1.TemplateApplyAnnotation + "'].orValue('')"
		requires = ".metadata.?annotations[?'" + v1alpha1.RequirePermissionAnnotation + "'].orValue('')"
		deletes  = ".spec.?deletionPolicy.orValue('') == '" + string(v1alpha1.DeletionDelete) + "'"
		disabled = "'" + v1alpha1.TemplateApplyDisable + "'"
	)
	return []admissionregistrationv1.MatchCondition{
		{
			Name: "decides-what-is-populated",
			Expression: "object == null ? oldObject" + deletes + " && oldObject" + applies + " != " + disabled + " : " +
				"oldObject == null || object.spec != oldObject.spec || " +
				"object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences || " +
				"object" + requires + " != oldObject" + requires + " || " +
				"object" + applies + " != oldObject" + applies + " && (object" + applies + " != " + disabled +
				" || object" + deletes + ")",
		},
		{
			Name:       "deleted-by-an-author",
			Expression: "object != null || !authorizer.group('*').resource('*').check('*').allowed()",
		},
	}
}

// WithNamespaceMutators adds what manifests/admission has as MutatingAdmissionPolicies, for API servers before 1.36.
// The validating policies see to it that nothing is forged, so a namespace may do without: Ignore.
func (t Table) WithNamespaceMutators(m NamespaceMutators) Table {
	add := func(name string, mutator Mutator, resources []string, operations ...admissionregistrationv1.OperationType) {
		t = append(t, Plugin{
			Name: name, Mutator: mutator,
			Rules: []admissionregistrationv1.RuleWithOperations{
				rule("", "v1", admissionregistrationv1.ClusterScope, resources, operations...),
			},
			FailurePolicy:  admissionregistrationv1.Ignore,
			TimeoutSeconds: 5,
		})
	}
	add("auto-opt-out", MutatorFunc(m.AutoOptOut), []string{"namespaces"}, admissionregistrationv1.Create)
	add("initialization", MutatorFunc(m.Initialization), []string{"namespaces"}, admissionregistrationv1.Create)
	add("creator", MutatorFunc(m.Creator), []string{"namespaces", "namespaces/status", "namespaces/finalize"},
		admissionregistrationv1.Create, admissionregistrationv1.Update)
	return t
}

// MutatorFunc is a Mutator.
type MutatorFunc func(ctx context.Context, request *Request) error

// Mutate calls the function.
func (f MutatorFunc) Mutate(ctx context.Context, request *Request) error { return f(ctx, request) }

// allObjects matches all objects that webhooks are called for, and their subresources.
func allObjects(operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	return rule("*", "*", admissionregistrationv1.AllScopes, []string{"*/*"}, operations...)
}

func rule(group, version string, scope admissionregistrationv1.ScopeType, resources []string,
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
