package tree

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// clusterNode returns the parent of all root policyspaces in the cluster, with their descendants. The nodes of
// namespaces have the policies that templates declare for them.
func (o *tree) clusterNode(ctx context.Context) (*node, error) {
	c, err := o.Connect()
	if err != nil {
		return nil, err
	}
	defer o.Progress("reading policyspaces and namespaces")()
	spaces, err := c.PolicySpaces(ctx)
	if err != nil {
		return nil, err
	}
	templates, err := c.Templates(ctx)
	if err != nil {
		return nil, err
	}
	namespaces, err := c.Namespaces.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.PolicySpaceLabel})
	if err != nil {
		return nil, err
	}
	quotas, err := c.Quotas(ctx)
	if apierrors.IsForbidden(err) {
		o.Note("cannot list ResourceQuotas, so the quotas of namespaces are not shown: %v", err)
	} else if err != nil {
		return nil, err
	}
	forest := hierarchy.NewForest(spaces)
	nodes := map[string]*node{}
	root := &node{Name: clusterKind, Kind: clusterKind}
	for _, name := range forest.Names() {
		nodes[name] = newSpaceNode(forest.Get(name), templates)
	}
	for _, name := range forest.Names() {
		parentName := forest.Get(name).Spec.Parent
		parent := nodes[parentName]
		if parent == nil || forest.Below(name)[parentName] {
			// A root, or a policyspace with an invalid parent, which is drawn beside the roots, with the reason.
			if _, err := forest.Lineage(name); err != nil {
				nodes[name].Problem = err.Error()
			}
			parent = root
		}
		parent.Children = append(parent.Children, nodes[name])
	}
	inSpaces := make([]*corev1.Namespace, 0, len(namespaces.Items))
	for i := range namespaces.Items {
		inSpaces = append(inSpaces, &namespaces.Items[i])
	}
	index, unread := c.Index(ctx, templates, inSpaces)
	for _, err := range unread {
		o.Note("%v", err)
	}
	cache := render.NewCache()
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		space := nodes[ns.Labels[v1alpha1.PolicySpaceLabel]]
		n := &node{Name: ns.Name, Kind: namespaceKind, Quota: map[string]string{}, Used: map[string]string{}}
		labeled, err := forest.Placed(ns)
		_, isNotAdopted := errors.AsType[*hierarchy.NotAdoptedError](err)
		switch {
		case space == nil && err == nil:
			continue // the label is empty, or the namespace may not be in a policyspace
		case space == nil:
			space, n.Problem = root, err.Error()
		case isNotAdopted:
			n.Problem = err.Error()
		}
		n.addPolicies(survey.Declare(cache, index, labeled))
		n.addQuotas(quotas)
		space.Children = append(space.Children, n)
	}
	root.sort()
	return root, addCommits(ctx, c, spaces, nodes)
}

// addCommits adds the commits that are in force to the roots of trees that PolicyRepositories declare. It adds none if
// the user may not list PolicyRepositories, or if the cluster does not have them.
func addCommits(
	ctx context.Context, c *cluster.Cluster, spaces []*v1alpha1.PolicySpace, nodes map[string]*node,
) error {
	repositories, err := c.PolicyRepositories(ctx)
	if apierrors.IsForbidden(err) || errors.Is(err, cluster.NotInstalledError{}) {
		return nil
	}
	for _, space := range spaces {
		if space.Spec.Parent == "" && space.Labels[v1alpha1.TreeLabel] == space.Name {
			nodes[space.Name].Commit = commitOf(repositories, space.Name)
		}
	}
	return err
}

// commitOf returns the hash of the commit of a tree that is in force, or "" if no repository declares the tree.
func commitOf(repositories []v1alpha1.PolicyRepository, tree string) string {
	for i := range repositories {
		if status := repositories[i].Status; status.Tree == tree && status.Commits.Applied != "" {
			return status.Commits.Applied
		}
	}
	return ""
}

// newSpaceNode returns the node of a policyspace, with the RoleBindings that the namespaces in it inherit.
func newSpaceNode(space *v1alpha1.PolicySpace, templates []*v1alpha1.NamespaceTemplate) *node {
	n := &node{
		Name: space.Name, Kind: spaceKind, Quota: quantities(quota.Hard(space)), Used: quantities(space.Status.Used),
	}
	for _, template := range templates {
		if !isOfSpace(template, space.Name) || match.DisabledReason(template) != "" {
			continue
		}
		for _, raw := range template.Spec.Templates {
			object := &unstructured.Unstructured{}
			if object.UnmarshalJSON(raw.Raw) == nil && isBinding(object.GroupVersionKind().GroupKind()) {
				// The name of a tree's RoleBinding begins with the name of its directory.
				n.RoleBindings = append(n.RoleBindings,
					binding{strings.TrimPrefix(object.GetName(), space.Name+"."), space.Name})
			}
		}
	}
	return n
}

// isOfSpace reports whether a template selects exactly the namespaces in a policyspace and in its descendants.
func isOfSpace(template *v1alpha1.NamespaceTemplate, space string) bool {
	selector, err := match.Selector(template.Spec.Namespaces)
	return err == nil && selector.String() == hierarchy.DepthLabel(space)
}

func isBinding(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
}

// addPolicies adds the Roles and RoleBindings that templates declare for a namespace. Their origin is the template.
func (n *node) addPolicies(declared survey.Namespace) {
	for _, object := range declared.Objects {
		switch kind := object.ID().GroupKind; {
		case isBinding(kind):
			n.RoleBindings = append(n.RoleBindings, binding{object.GetName(), object.Template.Name})
		case kind == schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}:
			n.Roles = append(n.Roles, object.GetName())
		}
	}
}

// addQuotas adds the quotas in a namespace. If several quotas limit a resource, it adds the smallest limit.
func (n *node) addQuotas(quotas []corev1.ResourceQuota) {
	smallest := corev1.ResourceList{}
	for i := range quotas {
		if quotas[i].Namespace != n.Name {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(quotas[i].Spec.Hard)) {
			hard, used := quotas[i].Spec.Hard[name], quotas[i].Status.Used[name]
			if known, limited := smallest[name]; !limited || hard.Cmp(known) < 0 {
				smallest[name] = hard
				n.Quota[string(name)], n.Used[string(name)] = hard.String(), used.String()
			}
		}
	}
}
