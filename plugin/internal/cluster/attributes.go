package cluster

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// AttributeRules returns the rules on attributes: those of the cluster, and those of a namespace or, for
// metav1.NamespaceAll, of all. It is a NotInstalledError where there can't be any.
func (c *Cluster) AttributeRules(ctx context.Context, namespace string) ([]v1alpha1.ClusterProtectedAttribute, []v1alpha1.ProtectedAttribute, error) {
	cluster, err := read[v1alpha1.ClusterProtectedAttribute](ctx, c, v1alpha1.ClusterProtectedAttributes, "")
	if err != nil {
		return nil, nil, err
	}
	namespaced, err := read[v1alpha1.ProtectedAttribute](ctx, c, v1alpha1.ProtectedAttributes, namespace)
	return cluster, namespaced, err
}

func read[T any](ctx context.Context, c *Cluster, resource schema.GroupVersionResource, namespace string) ([]T, error) {
	list, err := c.Dynamic.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, NotInstalledError{}
	}
	if err != nil {
		return nil, err
	}
	items := make([]T, len(list.Items))
	for i := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &items[i]); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", list.Items[i].GetKind(), list.Items[i].GetName(), err)
		}
	}
	return items, nil
}

// Holding is how somebody holds a role: by a RoleBinding, or by a ClusterRoleBinding, which is in no namespace.
type Holding struct {
	Subject            rbacv1.Subject
	Namespace, Binding string
}

// String is how people call the binding.
func (h Holding) String() string {
	if h.Namespace == "" {
		return "ClusterRoleBinding " + h.Binding
	}
	return "RoleBinding " + h.Namespace + "/" + h.Binding
}

// Holdings say who holds which role, in the order of the bindings' names, those of the cluster first.
type Holdings map[v1alpha1.RoleReference][]Holding

// Holdings returns who holds the roles everywhere, and in a namespace or, for metav1.NamespaceAll, in any. For the objects
// that are in no namespace, clusterScoped leaves out all that is in one.
func (c *Cluster) Holdings(ctx context.Context, namespace string, clusterScoped bool) (Holdings, error) {
	everywhere, err := c.RBAC.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	found := Holdings{}
	for _, binding := range everywhere.Items {
		found.add("", binding.Name, binding.RoleRef, binding.Subjects)
	}
	if clusterScoped {
		return found, nil
	}
	there, err := c.RBAC.RoleBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, binding := range there.Items {
		found.add(binding.Namespace, binding.Name, binding.RoleRef, binding.Subjects)
	}
	return found, nil
}

func (h Holdings) add(namespace, binding string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	role := v1alpha1.RoleReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	for _, subject := range subjects {
		h[role] = append(h[role], Holding{subject, namespace, binding})
	}
}

// By returns how somebody holds a role, or nil.
func (h Holdings) By(who attributes.Requester, role v1alpha1.RoleReference) *Holding {
	i := slices.IndexFunc(h[role], func(held Holding) bool {
		subject, ok := attributes.SubjectOf(held.Subject, held.Namespace)
		return ok && who.Is(subject)
	})
	if i < 0 {
		return nil
	}
	return &h[role][i]
}
