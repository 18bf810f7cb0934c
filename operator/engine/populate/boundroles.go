package populate

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// checkBindings returns why a Role must not get its rules, or nil. RBAC lets the users of a namespace bind a Role with
// the rules that it has: someone could create a Role without rules, bind it, and wait for the Role of a template. So
// could the author of a template that declared the Role before.
//
// A consistent list takes some 60 ms, until etcd has confirmed that the API server's cache is up to date (KEP-2340). In
// a namespace into which users cannot write at the moment, the cache, which is late by milliseconds, is good enough.
func (p *pass) checkBindings(ctx context.Context, change Change) error {
	if change.Kind.GroupKind() != roleKind || change.continuesRole() {
		return nil
	}
	isSame, err := p.hasRules(ctx, change)
	if err != nil || isSame {
		return err
	}
	var options metav1.ListOptions
	if p.isHeld {
		options.ResourceVersion = "0"
	}
	bindings, err := p.listBindings(ctx, options)
	if err != nil {
		return err
	}
	for i := range bindings {
		binding := &bindings[i]
		if role, ok := boundRole(binding); ok && role == change.ID() && !p.corrects(binding) && !p.declares(binding) {
			return failuref(ReasonBound, "rolebinding.rbac.authorization.k8s.io/%s, which no template declares as it "+
				"is, would grant its rules: delete the RoleBinding, rename the Role, or create the Role with the "+
				"declared rules, which takes these rights", binding.GetName())
		}
	}
	return nil
}

// continuesRole reports whether a Role had rules of its template until now, so that RoleBindings bound it with these. A
// Role that the operator has seen, and has created again whenever it was missing, had them, since admission denies that
// users change them. Only one that was being deleted had none, and one that driftPolicy Report has left as it was may
// have had others.
func (c Change) continuesRole() bool {
	before := c.Observed
	if c.Action == Create {
		before = c.Lost
	}
	isLeft := c.Declared.Template.Spec.DriftPolicy == v1alpha1.DriftReport && (c.Action == Create || c.Drifted)
	return !isLeft && before != nil && labelOf(before) == c.Template && before.DeletionTimestamp == nil
}

// listBindings returns the RoleBindings of the namespace.
func (p *pass) listBindings(ctx context.Context, options metav1.ListOptions) ([]unstructured.Unstructured, error) {
	bindings, err := p.objects.Resource(rbacv1.SchemeGroupVersion.WithResource("rolebindings")).Namespace(p.namespace).
		List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list the RoleBindings that may bind its Roles: %w", err)
	}
	return bindings.Items, nil
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

// corrects reports whether the plan changes or deletes a RoleBinding of a template.
func (p *pass) corrects(binding *unstructured.Unstructured) bool {
	return (Ours(binding) || ownEntry(binding) != nil) && p.changed[render.IDOf(binding)]
}

// declares reports whether the plan declares a RoleBinding as it is. One that differs grants something else until it is
// applied, which may fail.
func (p *pass) declares(binding *unstructured.Unstructured) bool {
	declared := p.declared[render.IDOf(binding)]
	return declared != nil &&
		equality.Semantic.DeepEqual(declared.Object["roleRef"], binding.Object["roleRef"]) &&
		equality.Semantic.DeepEqual(declared.Object["subjects"], binding.Object["subjects"])
}

// isEndingRole reports whether a Role is being deleted, and exists because of a finalizer. It gets no rules: a user
// who bound it while it had none would get them.
func isEndingRole(change Change) bool {
	return change.Kind.GroupKind() == roleKind && change.Observed != nil && change.Observed.DeletionTimestamp != nil
}
