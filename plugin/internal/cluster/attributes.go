package cluster

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// AttributeRules returns the cluster-scoped rules on attributes, and the rules of a namespace, or of all namespaces for
// metav1.NamespaceAll. The error may be a NotInstalledError. It returns the rules of the namespace also if the user may
// not list those of the cluster, which the error says.
func (c *Cluster) AttributeRules(
	ctx context.Context, namespace string,
) ([]v1alpha1.ClusterProtectedAttribute, []v1alpha1.ProtectedAttribute, error) {
	cluster, unread := c.ClusterAttributeRules(ctx)
	if unread != nil && !apierrors.IsForbidden(unread) {
		return nil, nil, unread
	}
	namespaced, err := read[v1alpha1.ProtectedAttribute](ctx, c, v1alpha1.ProtectedAttributes, namespace)
	if err != nil {
		return cluster, nil, err
	}
	return cluster, namespaced, unread
}

// ClusterAttributeRules returns the cluster-scoped rules on attributes.
func (c *Cluster) ClusterAttributeRules(ctx context.Context) ([]v1alpha1.ClusterProtectedAttribute, error) {
	return read[v1alpha1.ClusterProtectedAttribute](ctx, c, v1alpha1.ClusterProtectedAttributes, "")
}

// own lists the objects of one of nstpl's kinds in a namespace, or in all namespaces if namespace is empty.
func own[T any](ctx context.Context, c *Cluster, resource schema.GroupVersionResource, namespace string) ([]*T, error) {
	objects, err := List[T](ctx, c, resource, namespace, metav1.ListOptions{})
	return objects, c.installed(ctx, err)
}

// read lists objects as own does, and returns their values.
func read[T any](ctx context.Context, c *Cluster, resource schema.GroupVersionResource, namespace string) ([]T, error) {
	objects, err := own[T](ctx, c, resource, namespace)
	items := make([]T, len(objects))
	for i := range objects {
		items[i] = *objects[i]
	}
	return items, err
}

func withoutManagedFields[T any](object *T) {
	if meta, ok := any(object).(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
}

// BoundSubject is a subject of a role binding. Namespace is empty for a ClusterRoleBinding.
type BoundSubject struct {
	Subject            rbacv1.Subject
	Namespace, Binding string
}

// String returns the kind and the name of the binding.
func (b BoundSubject) String() string {
	if b.Namespace == "" {
		return "ClusterRoleBinding " + b.Binding
	}
	return "RoleBinding " + b.Namespace + "/" + b.Binding
}

// BoundSubjects holds the subjects that are bound to each role. The subjects of ClusterRoleBindings come before those
// of RoleBindings. Both are sorted by the name of the binding.
type BoundSubjects map[v1alpha1.RoleReference][]BoundSubject

// BoundSubjects returns the subjects of ClusterRoleBindings, and of the RoleBindings in a namespace, or in all
// namespaces for metav1.NamespaceAll. With clusterScoped it omits RoleBindings, which do not apply to cluster-scoped
// objects.
func (c *Cluster) BoundSubjects(ctx context.Context, namespace string, clusterScoped bool) (BoundSubjects, error) {
	clusterBindings, err := list(ctx, c, rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"), "",
		metav1.ListOptions{}, func(b *rbacv1.ClusterRoleBinding) { b.ObjectMeta = identity(b.ObjectMeta) })
	if err != nil {
		return nil, err
	}
	bound := BoundSubjects{}
	for _, binding := range clusterBindings {
		bound.add("", binding.Name, binding.RoleRef, binding.Subjects)
	}
	if clusterScoped {
		return bound, nil
	}
	bindings, err := list(ctx, c, rbacv1.SchemeGroupVersion.WithResource("rolebindings"), namespace,
		metav1.ListOptions{}, func(b *rbacv1.RoleBinding) { b.ObjectMeta = identity(b.ObjectMeta) })
	if err != nil {
		return nil, err
	}
	for _, binding := range bindings {
		bound.add(binding.Namespace, binding.Name, binding.RoleRef, binding.Subjects)
	}
	return bound, nil
}

func (s BoundSubjects) add(namespace, binding string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
	role := v1alpha1.RoleReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	for _, subject := range subjects {
		s[role] = append(s[role], BoundSubject{subject, namespace, binding})
	}
}

// Find returns the first subject that is bound to a role and that is the user or one of the user's groups. It returns
// nil if there is none.
func (s BoundSubjects) Find(user attributes.Requester, role v1alpha1.RoleReference) *BoundSubject {
	i := slices.IndexFunc(s[role], func(bound BoundSubject) bool {
		subject, ok := attributes.SubjectOf(bound.Subject, bound.Namespace)
		return ok && user.Is(subject)
	})
	if i < 0 {
		return nil
	}
	return &s[role][i]
}
