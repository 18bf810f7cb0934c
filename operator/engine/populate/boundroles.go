package populate

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// checkBindings returns why a Role must not be created or adopted, or nil. RBAC lets the users of a namespace bind a
// Role with the rules that it has: someone could create a Role without rules, bind it, and wait for the Role of a
// template. Roles that the namespace had from a template were bound with their rules, since admission denies that users
// change these.
func (p *pass) checkBindings(ctx context.Context, change Change) error {
	if change.Kind.GroupKind() != roleKind || change.Populated || change.Lost != nil {
		return nil
	}
	isSame, err := p.hasRules(ctx, change)
	if err != nil || isSame {
		return err
	}
	bindings, err := p.objects.Resource(rbacv1.SchemeGroupVersion.WithResource("rolebindings")).Namespace(p.namespace).
		List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the RoleBindings that may bind it: %w", err)
	}
	for i := range bindings.Items {
		binding := &bindings.Items[i]
		if role, ok := boundRole(binding); ok && role == change.ID() && !Ours(binding) && !p.declares(binding) {
			return &Failure{Reason: ReasonBound, err: fmt.Errorf("rolebinding.rbac.authorization.k8s.io/%s, which no "+
				"template declares, would grant its rules: delete the RoleBinding, or rename the Role", binding.GetName())}
		}
	}
	return nil
}

// hasRules reports whether a Role exists with the declared rules.
func (p *pass) hasRules(ctx context.Context, change Change) (bool, error) {
	if change.Observed == nil {
		return false, nil
	}
	role, err := p.objects.Resource(rbacv1.SchemeGroupVersion.WithResource("roles")).Namespace(p.namespace).
		Get(ctx, change.Name, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return false, err
	}
	return equality.Semantic.DeepEqual(role.Object["rules"], change.Declared.Object["rules"]), nil
}

// declares reports whether the plan declares an object.
func (p *pass) declares(object *unstructured.Unstructured) bool {
	return p.declared[ObjectID{object.GroupVersionKind().GroupKind(), object.GetName()}]
}
