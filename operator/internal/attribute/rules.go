package attribute

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// AttributeRules admits ProtectedAttributes and ClusterProtectedAttributes. A rule of a namespace opens what a
// ClusterProtectedAttribute closes, so that needs the right to write one of those.
type RuleAdmission struct {
	clients    kubernetes.Interface
	attributes *Admission
}

// NewAttributeRules returns the validator. The clients are the operator's own.
func NewRuleAdmission(clients kubernetes.Interface, attributes *Admission) *RuleAdmission {
	return &RuleAdmission{clients: clients, attributes: attributes}
}

// Validate is asked about creations and updates of rules.
func (r *RuleAdmission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Object == nil || request.SubResource != "" {
		return nil
	}
	rule, err := ruleOf(request.Object)
	if err != nil {
		return webhook.Deny(err.Error())
	}
	if request.OldObject != nil {
		if before, err := ruleOf(request.OldObject); err == nil && equality.Semantic.DeepEqual(before, rule) {
			return nil
		}
	}
	others, err := r.attributes.At(ctx, request.Revision)
	if err != nil {
		return err
	}
	if rule.Namespace != "" {
		if err := r.mayOpen(ctx, request, rule, others.Of(rule.Attribute(), "")); err != nil {
			return err
		}
	} else if opened := others.OfNamespaces(rule.Attribute()); len(opened) > 0 &&
		len(others.Of(rule.Attribute(), "")) == 0 {
		request.Warnings = append(request.Warnings,
			fmt.Sprintf("%s is about %s too, and was written when nothing closed it: whoever holds %s %s may touch it there, as by %d such rules in all",
				opened[0], rule.Attribute(), opened[0].RoleRef.Kind, opened[0].RoleRef.Name, len(opened)))
	}
	request.Warnings = append(request.Warnings, r.warnings(ctx, rule)...)
	return nil
}

func ruleOf(object *unstructured.Unstructured) (attributes.Rule, error) {
	rule := attributes.Rule{Namespace: object.GetNamespace(), Object: object.GetName()}
	// Both kinds have the same fields.
	found := &v1alpha1.ProtectedAttribute{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, found); err != nil {
		return rule, fmt.Errorf("%s: %w", rule, err)
	}
	rule.AttributeRule = found.AttributeRule
	return rule, nil
}

// mayOpen refuses a rule of a namespace about what a cluster's rules protect, unless its author could write such a rule
// too.
func (r *RuleAdmission) mayOpen(
	ctx context.Context, request *webhook.Request, rule attributes.Rule, closed []attributes.Rule,
) error {
	if len(closed) == 0 {
		return nil
	}
	review := webhook.ReviewOf(request.UserInfo)
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
		Resource: v1alpha1.ClusterProtectedAttributes.Resource, Verb: "create",
	}
	answer, err := r.clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask whether user %s may create ClusterProtectedAttributes: %w", request.UserInfo.Username,
			err)
	}
	if !answer.Status.Allowed {
		return webhook.Deny(fmt.Sprintf("%s would open %s, which %s closes, to %s %s: user %q needs the verb create on %s for that",
			rule, rule.Attribute(), closed[0], rule.RoleRef.Kind, rule.RoleRef.Name, request.UserInfo.Username,
			v1alpha1.ClusterProtectedAttributes.GroupResource()))
	}
	return nil
}

// warnings say what is odd about a rule's role. That it can't be read is not.
func (r *RuleAdmission) warnings(ctx context.Context, rule attributes.Rule) []string {
	role, rules, err := r.read(ctx, rule)
	switch {
	case apierrors.IsNotFound(err):
		return []string{
			fmt.Sprintf("%s does not exist yet: until it is created and bound, nobody may set %s by this rule", role,
				rule.Attribute()),
		}
	case err != nil:
		ctrl.LoggerFrom(ctx).Error(err, "can't read the role of a rule", "rule", rule.String(), "role", role)
	case rules == 0:
		return []string{fmt.Sprintf("%s has no rules, so whoever may write RoleBindings in a namespace can bind it to themselves there: "+
			"give it a rule that they don't hold", role)}
	}
	return nil
}

// read returns how messages call the role of a rule, and how many rules it has.
func (r *RuleAdmission) read(ctx context.Context, rule attributes.Rule) (name string, rules int, err error) {
	ref := rule.RoleRef
	if ref.Kind == v1alpha1.RoleKind {
		role, err := r.clients.RbacV1().Roles(rule.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		return "Role " + rule.Namespace + "/" + ref.Name, len(role.Rules), err
	}
	role, err := r.clients.RbacV1().ClusterRoles().Get(ctx, ref.Name, metav1.GetOptions{})
	if role.AggregationRule != nil {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{}) // they come from elsewhere
	}
	return "ClusterRole " + ref.Name, len(role.Rules), err
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
		FailurePolicy:  admissionregistrationv1.Fail, // a rule opens what another closes
		TimeoutSeconds: 10,
	}
}
