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
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// ofCluster returns the policyspaces of the cluster and the namespaces in them, with what templates declare for them.
func (o *tree) ofCluster(ctx context.Context) (*treeNode, error) {
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
		o.Note("unknown: the quotas of namespaces: %v", err)
	} else if err != nil {
		return nil, err
	}
	forest := hierarchy.NewForest(spaces)
	nodes := map[string]*treeNode{}
	root := &treeNode{Name: clusterNode, Kind: clusterNode}
	for _, name := range forest.Names() {
		nodes[name] = newSpaceNode(forest.Get(name), templates)
	}
	for _, name := range forest.Names() {
		above := forest.Get(name).Spec.Parent
		parent := nodes[above]
		if parent == nil || forest.Below(name)[above] {
			// A root, or one whose place is not known: it is drawn beside the others, and says why.
			if _, err := forest.Lineage(name); err != nil {
				nodes[name].Problem = err.Error()
			}
			parent = root
		}
		parent.Children = append(parent.Children, nodes[name])
	}
	index, cache := match.NewIndex(templates...), render.NewCache()
	for i := range namespaces.Items {
		ns := &namespaces.Items[i]
		space := nodes[ns.Labels[v1alpha1.PolicySpaceLabel]]
		node := &treeNode{Name: ns.Name, Kind: namespaceNode, Quota: map[string]string{}, Used: map[string]string{}}
		placed, broken := forest.Placed(ns)
		switch {
		case space == nil && broken == nil:
			continue // an empty label, or a namespace that is in no space whatever it says
		case space == nil:
			space, node.Problem = root, broken.Error()
		case isNotAdopted(broken):
			node.Problem = broken.Error()
		}
		node.declare(survey.Declare(cache, index, placed))
		node.limit(quotas)
		space.Children = append(space.Children, node)
	}
	root.sort()
	return root, nil
}

func isNotAdopted(misplaced error) bool {
	_, is := errors.AsType[*hierarchy.NotAdoptedError](misplaced)
	return is
}

func newSpaceNode(space *v1alpha1.PolicySpace, templates []*v1alpha1.NamespaceTemplate) *treeNode {
	node := &treeNode{Name: space.Name, Kind: spaceNode, Quota: written(quota.Hard(space)), Used: written(space.Status.Used)}
	for _, template := range templates {
		if !selectsBelow(template, space.Name) || match.Off(template) != "" {
			continue
		}
		for _, raw := range template.Spec.Templates {
			object := &unstructured.Unstructured{}
			if object.UnmarshalJSON(raw.Raw) == nil && isBinding(object.GroupVersionKind().GroupKind()) {
				// A tree's are called after their directory.
				node.RoleBindings = append(node.RoleBindings, treeBinding{strings.TrimPrefix(object.GetName(), space.Name+"."), space.Name})
			}
		}
	}
	return node
}

// selectsBelow tells whether a template is for all namespaces in a policyspace and below it, and for them alone.
func selectsBelow(template *v1alpha1.NamespaceTemplate, space string) bool {
	selector, err := match.Selector(template.Spec.Namespaces)
	return err == nil && selector.String() == hierarchy.DepthLabel(space)
}

func isBinding(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
}

// declare takes what templates declare for a namespace, by the template that does.
func (n *treeNode) declare(declared survey.Namespace) {
	for _, object := range declared.Objects {
		switch kind := object.ID().GroupKind; {
		case isBinding(kind):
			n.RoleBindings = append(n.RoleBindings, treeBinding{object.GetName(), object.Template.Name})
		case kind == schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}:
			n.Roles = append(n.Roles, object.GetName())
		}
	}
}

// limit takes the quotas that a namespace has of its own: of several, the smallest limit.
func (n *treeNode) limit(quotas []corev1.ResourceQuota) {
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
