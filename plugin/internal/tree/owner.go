package tree

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// ownerNode returns the tree as the owner of the current namespace sees it, who may not read the policies of the
// cluster: the policyspaces in the labels of the namespace, and the policies in it.
func (o *tree) ownerNode(ctx context.Context, c *cluster.Cluster) (*node, error) {
	ns, err := o.currentNamespace(ctx, c)
	if err != nil {
		return nil, err
	}
	o.isPartial = true
	o.Note("%s", cli.Unlisted("policyspaces and namespacetemplates",
		"only namespace/"+ns.Name+" and the policyspaces in its labels are shown"))
	root := &node{Name: clusterKind, Kind: clusterKind}
	parent := root
	for _, name := range slices.Backward(hierarchy.SpacesOf(ns)) {
		space := &node{Name: name, Kind: spaceKind}
		parent.Children = append(parent.Children, space)
		parent = space
	}
	n := &node{Name: ns.Name, Kind: namespaceKind, Quota: map[string]string{}, Used: map[string]string{}}
	parent.Children = append(parent.Children, n)
	return root, o.readPolicies(ctx, c, n)
}

// currentNamespace returns the namespace of the flag --namespace or of the kubeconfig.
func (o *tree) currentNamespace(ctx context.Context, c *cluster.Cluster) (*corev1.Namespace, error) {
	name, _, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	ns, err := c.Namespace(ctx, name)
	if apierrors.IsForbidden(err) {
		return nil, cli.NoAccess(name)
	}
	return ns, err
}

// onlyCurrent returns the current namespace, for a user who may not list namespaces. It returns none if the user may
// not read it.
func (o *tree) onlyCurrent(ctx context.Context, c *cluster.Cluster) ([]*corev1.Namespace, error) {
	name, _, err := o.Namespace()
	if err != nil {
		return nil, err
	}
	ns, err := c.Namespace(ctx, name)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		o.Note("you may not list namespaces, so none are shown")
		return nil, nil
	case err != nil:
		return nil, err
	}
	o.Note("you may not list namespaces, so only namespace/%s is shown", name)
	return []*corev1.Namespace{ns}, nil
}

// readPolicies adds the populated Roles and RoleBindings, and the quotas, that exist in a namespace. It prints a note
// on those that the user may not list.
func (o *tree) readPolicies(ctx context.Context, c *cluster.Cluster, n *node) error {
	populated := func(resource string) ([]metav1.PartialObjectMetadata, error) {
		list, err := c.Metadata.Resource(rbacv1.SchemeGroupVersion.WithResource(resource)).Namespace(n.Name).
			List(ctx, metav1.ListOptions{LabelSelector: populate.Labelled})
		if err != nil {
			return nil, o.noteForbidden(resource, n.Name, err)
		}
		return list.Items, nil
	}
	roles, err := populated("roles")
	if err != nil {
		return err
	}
	for i := range roles {
		n.Roles = append(n.Roles, roles[i].Name)
	}
	bindings, err := populated("rolebindings")
	if err != nil {
		return err
	}
	for i := range bindings {
		n.RoleBindings = append(n.RoleBindings,
			binding{bindings[i].Name, bindings[i].Labels[v1alpha1.TemplateNameLabel]})
	}
	quotas, err := c.Quotas(ctx, n.Name)
	if err != nil {
		return o.noteForbidden("resourcequotas", n.Name, err)
	}
	n.addQuotas(quotas)
	return nil
}

// noteForbidden prints a note if the user may not list a resource. It returns any other error.
func (o *tree) noteForbidden(resource, namespace string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	o.Note("you may not list %s in namespace %s, so they are not shown", resource, namespace)
	return nil
}
