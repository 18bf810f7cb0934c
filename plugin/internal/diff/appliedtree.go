package diff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// appliedTree is the state of the cluster after a tree was applied and the objects that it no longer declares were
// pruned.
type appliedTree struct {
	// unchanged are the templates whose spec stays the same, and changed the others.
	unchanged, changed []*v1alpha1.NamespaceTemplate
	index              *match.Index
	// namespaces are the existing namespaces that are or were in the tree, with the labels of their policyspaces. A
	// namespace that is not adopted has these labels as if it were adopted.
	namespaces []*corev1.Namespace
	notAdopted map[string]*hierarchy.NotAdoptedError
}

// apply returns the state of the cluster after a tree was applied. Root is the name of the tree.
func (live liveObjects) apply(
	root string, declared []*unstructured.Unstructured, by follower,
) (*appliedTree, error) {
	spaces, err := applyKind[v1alpha1.PolicySpace](live, policySpaceKind, root, declared, by)
	if err != nil {
		return nil, err
	}
	templates, err := applyKind[v1alpha1.NamespaceTemplate](live, templateKind, root, declared, by)
	if err != nil {
		return nil, err
	}
	namespaces, err := applyKind[corev1.Namespace](live, namespaceKind, root, declared, by)
	if err != nil {
		return nil, err
	}
	isOfTree := map[string]bool{}
	for name, space := range live[policySpaceKind] {
		isOfTree[name] = space.GetLabels()[v1alpha1.TreeLabel] == root
	}
	for _, space := range spaces {
		isOfTree[space.Name] = isOfTree[space.Name] || space.Labels[v1alpha1.TreeLabel] == root
	}
	isInTree := func(ns *corev1.Namespace) bool {
		return slices.ContainsFunc(hierarchy.SpacesOf(ns), func(space string) bool { return isOfTree[space] })
	}
	applied := &appliedTree{notAdopted: map[string]*hierarchy.NotAdoptedError{}}
	declaredTemplates := ofKind(declared, templateKind)
	for _, template := range templates {
		if sameSpec(live[templateKind][template.Name], declaredTemplates[template.Name]) {
			applied.unchanged = append(applied.unchanged, template)
		} else {
			applied.changed = append(applied.changed, template)
		}
	}
	forest := hierarchy.NewForest(spaces)
	declaredNamespaces := ofKind(declared, namespaceKind)
	for _, ns := range namespaces {
		if ns.UID == "" || ns.DeletionTimestamp != nil {
			continue // new and therefore empty, or being deleted
		}
		labeled, err := forest.Placed(ns)
		if notAdopted, ok := errors.AsType[*hierarchy.NotAdoptedError](err); ok && declaredNamespaces[ns.Name] != nil {
			applied.notAdopted[ns.Name] = notAdopted
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AdoptAnnotation, "true")
			labeled, err = forest.Placed(ns)
		}
		if isInTree(ns) || isInTree(labeled) {
			applied.namespaces = append(applied.namespaces, survey.WithPlacement(labeled, err))
		}
	}
	return applied, nil
}

// sameSpec reports whether a template keeps its spec when a tree is applied, which may not declare the template.
func sameSpec(live, declared *unstructured.Unstructured) bool {
	return declared == nil || live != nil && reflect.DeepEqual(
		withoutDefaults(live).Object["spec"], withoutDefaults(withDeclared(live, declared, nil)).Object["spec"])
}

// indexTemplates sets the index. Namespaces keep the revisions of the unchanged templates that rollouts have given
// them, and have the specs of the others, as after their rollouts. The errors are UnreadRevisionsErrors.
func (t *appliedTree) indexTemplates(ctx context.Context, c *cluster.Cluster) (unread []error) {
	t.index, unread = c.IndexWithoutExemptions(ctx, t.unchanged, t.namespaces)
	for _, template := range t.changed {
		t.index.Set(template)
	}
	return unread
}

// applyKind returns the objects of a kind after a tree was applied, sorted by name. A template that the tree no longer
// declares has a deletion timestamp, since the operator then prunes the objects that it populated.
func applyKind[T any](
	live liveObjects, kind schema.GroupVersionKind, root string, declared []*unstructured.Unstructured, by follower,
) ([]*T, error) {
	all, kept := map[string]*unstructured.Unstructured{}, live.kept(root, declared)
	for name, object := range live[kind] {
		switch isOfTree := object.GetLabels()[v1alpha1.TreeLabel] == root; {
		case !isOfTree || kept[object.GetUID()] != "":
			all[name] = object
		case kind == templateKind:
			now := metav1.Now()
			all[name] = object.DeepCopy()
			all[name].SetDeletionTimestamp(&now)
		}
	}
	for name, object := range ofKind(declared, kind) {
		if all[name] = object; live[kind][name] != nil {
			all[name] = withDeclared(live[kind][name], object, by)
		}
	}
	typed := make([]*T, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		object := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all[name].Object, object); err != nil {
			return nil, fmt.Errorf("decode %s %s: %w", kind.Kind, name, err)
		}
		typed = append(typed, object)
	}
	return typed, nil
}

// deletion is an object that the operator would delete in a namespace.
type deletion struct {
	namespace string
	populate.Change
}

// deletions returns the objects that the operator would delete in the namespaces of the tree, and the kinds that
// could not be listed. With contents, it also reads the objects.
func (t *appliedTree) deletions(
	ctx context.Context, c *cluster.Cluster, contents bool,
) ([]treeChange, []survey.Unreadable, error) {
	if len(t.namespaces) == 0 {
		return nil, nil, nil
	}
	exempt, err := c.Exemptions(ctx, t.namespaces)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, nil, err
	}
	cluster.SetExemptions(t.index, exempt)
	compared, err := survey.Compare(ctx, c, t.index, t.namespaces, survey.Scope{AllNamespaces: true})
	if err != nil {
		return nil, nil, err
	}
	var candidates []deletion
	for ns := range compared.Namespaces(ctx) {
		for _, change := range ns.Changes {
			// An object that has the name of a declared object is deleted if it cannot be updated in place.
			if change.Action == populate.Prune || change.Occupied {
				candidates = append(candidates, deletion{ns.Namespace.Name, change})
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	deleted, errs := cluster.EachOrError(candidates, func(candidate deletion) (treeChange, error) {
		return t.delete(ctx, c, candidate, contents)
	})
	deleted = slices.DeleteFunc(deleted, func(change treeChange) bool { return change.Action == "" })
	return deleted, compared.Unreadable, errors.Join(errs...)
}

// delete returns the change for the deletion of an object. Its action is empty if the object would not be deleted.
func (t *appliedTree) delete(
	ctx context.Context, c *cluster.Cluster, candidate deletion, contents bool,
) (treeChange, error) {
	change := treeChange{
		Namespace: candidate.namespace, Action: actionDelete, Note: candidate.Reason, kind: candidate.Kind,
		name: candidate.Name,
	}
	if t.notAdopted[candidate.namespace] != nil {
		change.Action = actionDeleteIfAdopted
	}
	if !contents && !candidate.Occupied {
		return change, nil
	}
	sides, err := survey.DryRun(ctx, c, candidate.namespace, candidate.Change)
	if apierrors.IsForbidden(err) {
		return change, nil
	}
	change.sides = sides
	if candidate.Occupied {
		change.Note = "cannot be updated in place, so it would be deleted and recreated"
		if !sides.Replaced {
			change.Action = ""
		}
	}
	return change, err
}

// markNotAdopted returns the changes with the action "leave alone" for each Namespace that is not adopted.
func (t *appliedTree) markNotAdopted(changes []treeChange, live liveObjects, by follower) []treeChange {
	marked := slices.Clone(changes)
	for _, name := range slices.Sorted(maps.Keys(t.notAdopted)) {
		at := slices.IndexFunc(marked, func(change treeChange) bool {
			return change.kind == namespaceKind && change.name == name
		})
		if at < 0 {
			at = len(marked)
			marked = append(marked, treeChange{kind: namespaceKind, name: name})
		}
		marked[at].Action = actionLeaveAlone
		tree := t.notAdopted[name].Tree
		marked[at].Note = fmt.Sprintf("existed before tree %s and is not adopted, so it is left alone: %s", tree,
			live.howToAdopt(name, tree, by))
	}
	return marked
}

// howToAdopt says how a tree adopts a namespace. Nstpl-sync adopts none that belongs to another tree.
func (live liveObjects) howToAdopt(namespace, tree string, by follower) string {
	if by == nil {
		return "adopt it with 'kubectl nstpl hydrate DIR --adopt'"
	}
	adopt := fmt.Sprintf("'kubectl annotate namespace %s %s=true'", namespace, v1alpha1.AdoptAnnotation)
	of := otherTree(live[namespaceKind][namespace], tree)
	if of == "" {
		return "adopt it with " + adopt
	}
	remedy := fmt.Sprintf("it belongs to tree %s: hand it over with 'kubectl label namespace %s %s=%s --overwrite'",
		of, namespace, v1alpha1.TreeLabel, tree)
	if by.Spec.ExistingNamespaces != v1alpha1.ExistingAdopt {
		remedy += ", and adopt it with " + adopt
	}
	return remedy
}

// otherTree returns the tree to which a live object belongs, or "" if it belongs to none or to this tree.
func otherTree(live *unstructured.Unstructured, tree string) string {
	if of := live.GetLabels()[v1alpha1.TreeLabel]; of != tree {
		return of
	}
	return ""
}
