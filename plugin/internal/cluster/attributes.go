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
// metav1.NamespaceAll, of all namespaces. The error may be a NotInstalledError.
func (c *Cluster) AttributeRules(
	ctx context.Context, namespace string,
) ([]v1alpha1.ClusterProtectedAttribute, []v1alpha1.ProtectedAttribute, error) {
	cluster, err := read[v1alpha1.ClusterProtectedAttribute](ctx, c, v1alpha1.ClusterProtectedAttributes, "")
	if err != nil {
		return nil, nil, err
	}
	namespaced, err := read[v1alpha1.ProtectedAttribute](ctx, c, v1alpha1.ProtectedAttributes, namespace)
	return cluster, namespaced, err
}

// read lists the objects of a resource in a namespace or, if that is empty, all.
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

// Holding is the binding by which a subject holds a role. Namespace is empty for a ClusterRoleBinding.
type Holding struct {
	Subject            rbacv1.Subject
	Namespace, Binding string
}

// String returns the kind and the name of the binding.
func (h Holding) String() string {
	if h.Namespace == "" {
		return "ClusterRoleBinding " + h.Binding
	}
	return "RoleBinding " + h.Namespace + "/" + h.Binding
}

// Holdings are the holdings of each role: first those by ClusterRoleBindings, then those by RoleBindings, each in the
// order of names.
type Holdings map[v1alpha1.RoleReference][]Holding

// Holdings returns the holdings by ClusterRoleBindings, and those by RoleBindings in a namespace or, for
// metav1.NamespaceAll, in any. With clusterScoped it leaves out RoleBindings, which do not apply to cluster-scoped
// objects.
func (c *Cluster) Holdings(ctx context.Context, namespace string, clusterScoped bool) (Holdings, error) {
	everywhere, err := c.RBAC.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	holdings := Holdings{}
	for _, binding := range everywhere.Items {
		holdings.add("", binding.Name, binding.RoleRef, binding.Subjects)
	}
	if clusterScoped {
		return holdings, nil
	}
	inNamespace, err := c.RBAC.RoleBindings(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, binding := range inNamespace.Items {
		holdings.add(binding.Namespace, binding.Name, binding.RoleRef, binding.Subjects)
	}
	return holdings, nil
}

func (h Holdings) add(namespace, binding string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	role := v1alpha1.RoleReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	for _, subject := range subjects {
		h[role] = append(h[role], Holding{subject, namespace, binding})
	}
}

// By returns the first holding of a role by a user, or by a group of that user. It returns nil if there is none.
func (h Holdings) By(user attributes.Requester, role v1alpha1.RoleReference) *Holding {
	i := slices.IndexFunc(h[role], func(held Holding) bool {
		subject, ok := attributes.SubjectOf(held.Subject, held.Namespace)
		return ok && user.Is(subject)
	})
	if i < 0 {
		return nil
	}
	return &h[role][i]
}
