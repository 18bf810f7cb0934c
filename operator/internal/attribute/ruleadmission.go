package attribute

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// RuleAdmission is the validator of ProtectedAttributes and ClusterProtectedAttributes. A ProtectedAttribute permits
// the holders of its role to change an attribute in its namespace. If a ClusterProtectedAttribute protects that
// attribute, the author must be allowed to create ClusterProtectedAttributes.
type RuleAdmission struct {
	clients kubernetes.Interface
	rules   *RuleCache
}

// NewRuleAdmission returns the validator. The clients act as the operator.
func NewRuleAdmission(clients kubernetes.Interface, admission *Admission) *RuleAdmission {
	return &RuleAdmission{clients: clients, rules: admission.rules}
}

// Plugin returns the row of the chain.
func (r *RuleAdmission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "attribute-rules", Validator: r,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, admissionregistrationv1.AllScopes,
				[]string{v1alpha1.ProtectedAttributes.Resource, v1alpha1.ClusterProtectedAttributes.Resource},
				admissionregistrationv1.Create, admissionregistrationv1.Update),
		},
		FailurePolicy:  admissionregistrationv1.Fail, // a rule can permit what another rule forbids
		TimeoutSeconds: 10,
	}
}

// Validate decides about the creation or update of a rule.
func (r *RuleAdmission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Object == nil || request.SubResource != "" {
		return nil
	}
	rule, err := ruleOf(request.Object)
	if err != nil {
		return webhook.Deny(codes.InvalidObject, err.Error())
	}
	if request.OldObject != nil {
		if before, err := ruleOf(request.OldObject); err == nil && equality.Semantic.DeepEqual(before, rule) {
			return nil
		}
	}
	if err := r.checkSize(ctx, request, rule); err != nil {
		return err
	}
	others, err := r.rules.concerning(ctx, rule)
	if err != nil {
		return err
	}
	if protecting := others.Of(rule.Attribute(), ""); rule.Namespace != "" && len(protecting) > 0 {
		allowed, err := r.mayCreateClusterRules(ctx, request)
		if err != nil {
			return err
		}
		if !allowed {
			return denyPermission(request.UserInfo.Username, rule, protecting[0])
		}
	}
	request.Warnings = append(request.Warnings, earlierRulesWarning(rule, others)...)
	request.Warnings = append(request.Warnings, r.roleWarnings(ctx, rule)...)
	return nil
}

// The webhooks of the whole cluster contain the names of all rules, and must fit into one object of 1.5 MiB. Bytes of
// the names in one namespace, and in all namespaces together, of which each counts once.
const (
	maxNamesOfNamespace  = 8 << 10
	maxNamesOfNamespaces = 256 << 10
)

// checkSize denies a namespace's rule whose name does not fit, unless the requester may create
// ClusterProtectedAttributes.
func (r *RuleAdmission) checkSize(ctx context.Context, request *webhook.Request, rule attributes.Rule) error {
	if rule.Namespace == "" {
		return nil
	}
	if request.OldObject != nil {
		if before, err := ruleOf(request.OldObject); err == nil && before.Attribute() == rule.Attribute() {
			return nil
		}
	}
	own, all, err := r.rules.sizes(ctx, rule)
	if err != nil || own <= maxNamesOfNamespace && all <= maxNamesOfNamespaces {
		return err
	}
	allowed, err := r.mayCreateClusterRules(ctx, request)
	if err != nil || allowed {
		return err
	}
	which, limit := "namespace "+rule.Namespace, maxNamesOfNamespace
	if own <= maxNamesOfNamespace {
		which, limit = "all namespaces", maxNamesOfNamespaces
	}
	return webhook.Deny(codes.AttributesFull, fmt.Sprintf("the names that ProtectedAttributes of %s protect have more than "+
		"%d KiB: delete some, or ask a user with the verb create on %s", which, limit>>10,
		v1alpha1.ClusterProtectedAttributes.GroupResource()))
}

// mayCreateClusterRules reports whether the requester may create ClusterProtectedAttributes.
func (r *RuleAdmission) mayCreateClusterRules(ctx context.Context, request *webhook.Request) (bool, error) {
	reviews := r.clients.AuthorizationV1().SubjectAccessReviews()
	return webhook.IsAllowed(ctx, reviews, request.UserInfo, authorizationv1.ResourceAttributes{
		Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
		Resource: v1alpha1.ClusterProtectedAttributes.Resource, Verb: "create",
	})
}

// denyPermission denies a namespace's rule because a cluster's rule protects the attribute.
func denyPermission(user string, rule, protecting attributes.Rule) error {
	return webhook.Deny(codes.AttributeRule, fmt.Sprintf(
		"%s would permit %s %s to change %s, which %s protects: user %q needs the verb create on %s to write this rule",
		rule, rule.RoleRef.Kind, rule.RoleRef.Name, rule.Attribute(), protecting, user,
		v1alpha1.ClusterProtectedAttributes.GroupResource()))
}

// earlierRulesWarning returns a warning if a rule is the first of the cluster about an attribute that rules of
// namespaces already permit to change. Their authors did not need the right to create ClusterProtectedAttributes.
func earlierRulesWarning(rule attributes.Rule, others *attributes.Rules) []string {
	if rule.Namespace != "" || len(others.Of(rule.Attribute(), "")) > 0 {
		return nil
	}
	earlier := others.OfNamespaces(rule.Attribute())
	if len(earlier) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s remains in force and permits %s %s to change %s, although its author was not required "+
		"to have the right to create ClusterProtectedAttributes (such rules: %d)",
		earlier[0], earlier[0].RoleRef.Kind, earlier[0].RoleRef.Name, rule.Attribute(), len(earlier))}
}

// ruleOf returns the rule in an object of either kind.
func ruleOf(object *unstructured.Unstructured) (attributes.Rule, error) {
	rule := attributes.Rule{Namespace: object.GetNamespace(), Object: object.GetName()}
	// A ClusterProtectedAttribute has the same fields.
	decoded := &v1alpha1.ProtectedAttribute{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, decoded); err != nil {
		return rule, fmt.Errorf("%s: %w", rule, err)
	}
	rule.AttributeRule = decoded.AttributeRule
	return rule, nil
}

// roleWarnings returns a warning if the role of a rule does not exist or protects nothing. A role that cannot be read
// causes no warning.
func (r *RuleAdmission) roleWarnings(ctx context.Context, rule attributes.Rule) []string {
	role, rules, err := r.readRole(ctx, rule)
	switch {
	case apierrors.IsNotFound(err):
		return []string{fmt.Sprintf("%s does not exist. The subjects of bindings to this name may set %s all the same: "+
			"create the role, and delete bindings that should not count", role, rule.Attribute())}
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "cannot read the role of a rule", "rule", rule.String(), "role", role)
	case rules == 0:
		return []string{fmt.Sprintf("%s has no rules, so any user who may create RoleBindings in a namespace can bind it to "+
			"themselves there: add a rule with a right that those users do not hold", role)}
	}
	return nil
}

// readRole returns the name of a rule's role in messages, and the number of the role's rules.
func (r *RuleAdmission) readRole(ctx context.Context, rule attributes.Rule) (name string, rules int, err error) {
	ref := rule.RoleRef
	if ref.Kind == v1alpha1.RoleKind {
		role, err := r.clients.RbacV1().Roles(rule.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		return "Role " + rule.Namespace + "/" + ref.Name, len(role.Rules), err
	}
	role, err := r.clients.RbacV1().ClusterRoles().Get(ctx, ref.Name, metav1.GetOptions{})
	rules = len(role.Rules)
	if role.AggregationRule != nil {
		rules++ // the rules come from other ClusterRoles, and may be missing for a moment
	}
	return "ClusterRole " + ref.Name, rules, err
}
