package selfservice

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/internal/policyspace"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// ParentAdmission validates the parents of PolicySpaces: the rules of a policy space must not be avoided by users who
// move one of those below it elsewhere, with all its namespaces, or one from elsewhere below it. A policy space that is
// created has the namespaces whose labels name it, and one may be deleted, and created again elsewhere.
type ParentAdmission struct{ namespaces *Admission }

// Plugin returns the row of the admission chain. While no policy space has rules, the API server sends nothing.
func (a *ParentAdmission) Plugin() webhook.Plugin {
	rules := []admissionregistrationv1.RuleWithOperations{
		webhook.Rule(v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, admissionregistrationv1.ClusterScope,
			[]string{v1alpha1.PolicySpaces.Resource},
			admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete),
	}
	conditions := webhook.Every("parent-of-a-policyspace",
		"(oldObject == null ? '' : oldObject.?spec.parent.orValue('')) != "+
			"(object == null ? '' : object.?spec.parent.orValue(''))",
		byNoAdministrator)
	return webhook.Plugin{
		Name: "self-service-parents", Validator: a, Rules: rules, MatchConditions: conditions,
		FailurePolicy:  admissionregistrationv1.Fail, // it is a permission check
		TimeoutSeconds: 5,
		Webhooks: func(context.Context) ([]webhook.Webhook, error) {
			if !a.namespaces.rules.any() {
				return nil, nil
			}
			return []webhook.Webhook{{Rules: rules, MatchConditions: conditions}}, nil
		},
		Changes: &a.namespaces.rules.changes,
	}
}

// Validate implements webhook.Validator for PolicySpaces. It denies another parent if the rules of an ancestor would
// not hold any more, or would hold for namespaces that were not judged by them, unless the requester may change these
// rules. A policy space with namespaces that is created gets a parent, too, and one that is deleted loses it.
func (a *ParentAdmission) Validate(ctx context.Context, request *webhook.Request) error {
	before, after := parentIn(request.OldObject), parentIn(request.Object)
	if before == after || request.SubResource != "" {
		return nil
	}
	left, err := policyspace.Lineage(ctx, a.namespaces.live, before)
	if err != nil {
		return err
	}
	entered, err := policyspace.Lineage(ctx, a.namespaces.live, after)
	if err != nil {
		return err
	}
	name := cmp.Or(request.Object, request.OldObject).GetName() // a request for a collection has none
	isMoved := request.OldObject != nil && request.Object != nil
	if !isMoved && hasRules(slices.Concat(left, entered)) {
		isUsed, err := policyspace.IsUsed(ctx, a.namespaces.live, name)
		if err != nil || !isUsed {
			return err
		}
	}
	if err := a.requirePatch(ctx, request, name, left, entered, "must stay below"); err != nil {
		return err
	}
	return a.requirePatch(ctx, request, name, entered, left, "cannot move below")
}

// requirePatch denies a request for a policy space of a user who may not patch each one that has rules and is in one
// lineage only.
func (a *ParentAdmission) requirePatch(
	ctx context.Context, request *webhook.Request, moved string, in, notIn []*v1alpha1.PolicySpace, problem string,
) error {
	for _, space := range in {
		if space.Spec.SelfService == nil || contains(notIn, space) {
			continue
		}
		isAdministrator, err := a.namespaces.mayPatch(ctx, request, space.Name)
		if err != nil {
			return err
		}
		if !isAdministrator {
			return webhook.Deny(codes.SelfService, fmt.Sprintf(
				"policyspace %s and its namespaces %s policyspace %[3]s, whose self-service has rules for them: "+
					"ask for the verb patch on policyspaces/%[3]s in the API group %[4]s",
				moved, problem, space.Name, v1alpha1.PolicySpaces.Group))
		}
	}
	return nil
}

// parentIn returns the parent of a policy space, or "" if there is none.
func parentIn(space *unstructured.Unstructured) string {
	if space == nil {
		return ""
	}
	parent, _, _ := unstructured.NestedString(space.Object, "spec", "parent")
	return parent
}
