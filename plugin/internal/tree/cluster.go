package tree

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// content is what a cluster contains of a tree.
type content struct {
	spaces     []*v1alpha1.PolicySpace
	templates  []*v1alpha1.NamespaceTemplate
	namespaces []*corev1.Namespace
	quotas     []*corev1.ResourceQuota
}

// clusterNode returns the parent of all root policyspaces in the cluster, with their descendants. The nodes of
// namespaces have the policies that templates declare for them.
func (o *tree) clusterNode(ctx context.Context) (*node, error) {
	c, err := o.Connect()
	if err != nil {
		return nil, err
	}
	defer o.Progress("reading policyspaces and namespaces")()
	read, err := o.read(ctx, c)
	if apierrors.IsForbidden(err) {
		return o.ownerNode(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	index, unread := c.Index(ctx, read.templates, read.namespaces)
	for _, err := range unread {
		o.Note("%v", err)
	}
	forest := hierarchy.NewForest(read.spaces)
	root := &node{Name: clusterKind, Kind: clusterKind}
	nodes := spaceNodes(root, forest, inForce(index, read.templates))
	addNamespaces(root, nodes, forest, index, read)
	root.sort()
	return root, addCommits(ctx, c, read.spaces, nodes)
}

// read lists all at once. Of a user who may not list namespaces, it reads only the current one. It notes that there are
// no quotas if the user may not list them.
func (o *tree) read(ctx context.Context, c *cluster.Cluster) (read content, err error) {
	var listing sync.WaitGroup
	var errs [4]error
	var missing string
	listing.Go(func() { missing = cli.MissingOperator(ctx, c, "the tree may be old") })
	listing.Go(func() { read.spaces, errs[0] = c.PolicySpaces(ctx) })
	listing.Go(func() { read.templates, errs[1] = c.Templates(ctx) })
	listing.Go(func() { read.namespaces, errs[2] = c.ListNamespaces(ctx, v1alpha1.PolicySpaceLabel) })
	listing.Go(func() { read.quotas, errs[3] = c.Quotas(ctx, metav1.NamespaceAll) })
	listing.Wait()
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		return read, err
	}
	if missing != "" {
		o.Note("%s", missing)
	}
	if apierrors.IsForbidden(errs[2]) {
		read.namespaces, errs[2] = o.onlyCurrent(ctx, c)
	}
	if errs[2] != nil {
		return read, errs[2]
	}
	if apierrors.IsForbidden(errs[3]) {
		o.Note("you may not list resourcequotas in all namespaces, so the quotas of namespaces are not shown")
		return read, nil
	}
	return read, errs[3]
}

// inForce returns the templates as namespaces inherit from them: with their last accepted changes. A template without a
// revision was never accepted.
func inForce(index *match.Index, templates []*v1alpha1.NamespaceTemplate) (accepted []*v1alpha1.NamespaceTemplate) {
	for _, template := range templates {
		if len(template.Status.Revisions) > 0 {
			accepted = append(accepted, index.Layers(template.Name)[0].Template)
		}
	}
	return accepted
}

// spaceNodes adds the nodes of all policyspaces below root, and returns them by name.
func spaceNodes(root *node, forest hierarchy.Forest, templates []*v1alpha1.NamespaceTemplate) map[string]*node {
	nodes, ofSpaces := map[string]*node{}, templatesOfSpaces(templates)
	for _, name := range forest.Names() {
		nodes[name] = newSpaceNode(forest.Get(name), ofSpaces[name])
	}
	for _, name := range forest.Names() {
		parentName := forest.Get(name).Spec.Parent
		parent := nodes[parentName]
		_, err := forest.Lineage(name)
		if parent == nil || err != nil && forest.Below(name)[parentName] {
			// A root, or a policyspace with an invalid parent, which is drawn beside the roots, with the reason.
			if err != nil {
				nodes[name].Problem = err.Error()
			}
			parent = root
		}
		parent.Children = append(parent.Children, nodes[name])
	}
	return nodes
}

// addNamespaces adds the nodes of namespaces to those of their policyspaces, or to root if there is none.
func addNamespaces(
	root *node, spaces map[string]*node, forest hierarchy.Forest, index *match.Index, read content,
) {
	cache, quotas := render.NewCache(), quotasOfNamespaces(read.quotas)
	nodes := cluster.Each(read.namespaces, func(ns *corev1.Namespace) *node {
		n := &node{Name: ns.Name, Kind: namespaceKind, Quota: map[string]string{}, Used: map[string]string{}}
		labeled, err := forest.Placed(ns)
		_, isNotAdopted := errors.AsType[*hierarchy.NotAdoptedError](err)
		switch hasSpace := spaces[ns.Labels[v1alpha1.PolicySpaceLabel]] != nil; {
		case !hasSpace && err == nil:
			return nil // the label is empty, or the namespace may not be in a policyspace
		case !hasSpace, isNotAdopted:
			n.Problem = err.Error()
		}
		n.addPolicies(survey.Declare(cache, nil, index, labeled))
		n.addQuotas(quotas[ns.Name])
		return n
	})
	for i, n := range nodes {
		if n != nil {
			parent := cmp.Or(spaces[read.namespaces[i].Labels[v1alpha1.PolicySpaceLabel]], root)
			parent.Children = append(parent.Children, n)
		}
	}
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

// commitOf returns the hash of the commit of a tree that is in force, or "" if no repository declares the tree, or
// while another commit, or another directory of the same one, is brought into force.
func commitOf(repositories []v1alpha1.PolicyRepository, tree string) string {
	for i := range repositories {
		status := repositories[i].Status
		ready := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		isApplying := ready != nil &&
			(ready.Reason == v1alpha1.RepositoryProgressing || ready.Reason == v1alpha1.RepositoryObjectsFailed)
		if commits := status.Commits; status.Tree == tree && commits.Applied != "" &&
			commits.Applied == commits.Vetted && !isApplying {
			return commits.Applied
		}
	}
	return ""
}

// newSpaceNode returns the node of a policyspace, with the RoleBindings that the namespaces in it inherit from its
// templates.
func newSpaceNode(space *v1alpha1.PolicySpace, templates []*v1alpha1.NamespaceTemplate) *node {
	n := &node{Name: space.Name, Kind: spaceKind, Quota: quantities(quota.Hard(space)), Used: map[string]string{}}
	for name := range quota.Hard(space) {
		if used, isKnown := quota.Known(space, name); isKnown {
			n.Used[string(name)] = used.String()
		}
	}
	for _, template := range templates {
		if match.DisabledReason(template) != "" {
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

// templatesOfSpaces returns, for each policyspace, the templates that select exactly the namespaces in it and in its
// descendants.
func templatesOfSpaces(templates []*v1alpha1.NamespaceTemplate) map[string][]*v1alpha1.NamespaceTemplate {
	ofSpaces := map[string][]*v1alpha1.NamespaceTemplate{}
	for _, template := range templates {
		selector := template.Spec.Namespaces.LabelSelector
		if selector == nil || len(selector.MatchLabels) > 0 || len(selector.MatchExpressions) != 1 {
			continue
		}
		only := selector.MatchExpressions[0]
		if space, ok := strings.CutSuffix(only.Key, v1alpha1.DepthLabelSuffix); ok &&
			only.Operator == metav1.LabelSelectorOpExists {
			ofSpaces[space] = append(ofSpaces[space], template)
		}
	}
	return ofSpaces
}

func quotasOfNamespaces(quotas []*corev1.ResourceQuota) map[string][]*corev1.ResourceQuota {
	ofNamespaces := map[string][]*corev1.ResourceQuota{}
	for _, quota := range quotas {
		ofNamespaces[quota.Namespace] = append(ofNamespaces[quota.Namespace], quota)
	}
	return ofNamespaces
}

func isBinding(kind schema.GroupKind) bool {
	return kind == schema.GroupKind{Group: rbacv1.GroupName, Kind: "RoleBinding"}
}

// addPolicies adds the Roles and RoleBindings that templates declare for a namespace, and why some of them are unknown.
// Their origin is the template.
func (n *node) addPolicies(declared survey.Namespace) {
	for _, broken := range declared.BrokenTemplates() {
		n.Problem = strings.TrimPrefix(n.Problem+"; "+broken.Message, "; ")
	}
	for _, object := range declared.Objects {
		switch kind := object.ID().GroupKind; {
		case isBinding(kind):
			n.RoleBindings = append(n.RoleBindings, binding{object.GetName(), object.Template.Name})
		case kind == schema.GroupKind{Group: rbacv1.GroupName, Kind: "Role"}:
			n.Roles = append(n.Roles, object.GetName())
		}
	}
}

// addQuotas adds the quotas in a namespace, except for those with scopes, which limit only some of its objects. If
// several quotas limit a resource, it adds the smallest limit. It adds no usage that Kubernetes has not counted.
func (n *node) addQuotas(quotas []*corev1.ResourceQuota) {
	smallest := corev1.ResourceList{}
	for i := range quotas {
		if len(quotas[i].Spec.Scopes) > 0 || quotas[i].Spec.ScopeSelector != nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(quotas[i].Spec.Hard)) {
			hard := quotas[i].Spec.Hard[name]
			if known, limited := smallest[name]; limited && hard.Cmp(known) >= 0 {
				continue
			}
			smallest[name], n.Quota[string(name)] = hard, hard.String()
			delete(n.Used, string(name)) // of the greater limit
			if used, isCounted := quotas[i].Status.Used[name]; isCounted {
				n.Used[string(name)] = used.String()
			}
		}
	}
}
