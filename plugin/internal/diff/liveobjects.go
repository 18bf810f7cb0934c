package diff

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

var (
	namespaceKind   = corev1.SchemeGroupVersion.WithKind("Namespace")
	policySpaceKind = v1alpha1.GroupVersion.WithKind("PolicySpace")
	templateKind    = v1alpha1.GroupVersion.WithKind("NamespaceTemplate")

	// otherKinds are the kinds that a tree is compiled to besides Namespaces.
	otherKinds = []schema.GroupVersionKind{
		policySpaceKind, templateKind,
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
	}
	treeKinds = append([]schema.GroupVersionKind{namespaceKind}, otherKinds...)
)

// liveObjects are the objects in the cluster of the kinds that a tree is compiled to, by name. They are not changed.
type liveObjects map[schema.GroupVersionKind]map[string]*unstructured.Unstructured

// readLiveObjects lists each kind once.
func readLiveObjects(ctx context.Context, c *cluster.Cluster) (liveObjects, error) {
	live := liveObjects{}
	for _, kind := range treeKinds {
		mapping, err := c.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, cluster.NotInstalledError{}
		}
		list, err := c.Dynamic.Resource(mapping.Resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		live[kind] = map[string]*unstructured.Unstructured{}
		for i := range list.Items {
			live[kind][list.Items[i].GetName()] = &list.Items[i]
		}
	}
	return live, nil
}

// compare returns what applying the declared objects of a tree would change, and what pruning would delete. It sends a
// dry run for each object that is not as declared.
func (live liveObjects) compare(
	ctx context.Context, c *cluster.Cluster, tree string, declared []*unstructured.Unstructured,
) ([]treeChange, error) {
	var changes []treeChange
	for _, kind := range treeKinds {
		mapping, err := c.Mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, cluster.NotInstalledError{}
		}
		objects := c.Dynamic.Resource(mapping.Resource)
		var wanted []*unstructured.Unstructured
		for _, object := range declared {
			if object.GroupVersionKind() == kind {
				wanted = append(wanted, object)
			}
		}
		compared := cluster.Each(wanted, func(object *unstructured.Unstructured) treeChange {
			return compareObject(ctx, objects, live[kind][object.GetName()], object)
		})
		changes = append(changes, slices.DeleteFunc(compared, func(change treeChange) bool {
			return change.Action == ""
		})...)
		changes = append(changes, live.undeclared(kind, tree, declared)...)
	}
	return changes, nil
}

// compareObject returns what would become of an object. The action is empty if it would not change.
func compareObject(
	ctx context.Context, objects dynamic.ResourceInterface, live, declared *unstructured.Unstructured,
) treeChange {
	change := treeChange{kind: declared.GroupVersionKind(), name: declared.GetName()}
	if live == nil {
		change.Action, change.sides = treeCreate, survey.Sides{Stored: declared}
		return change
	}
	wanted := withDeclared(live, declared)
	if reflect.DeepEqual(wanted.Object, withoutDefaults(live).Object) {
		return change
	}
	stored, err := objects.Update(ctx, wanted, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		stored, change.Note = wanted, "is estimated: "+err.Error()
		if apierrors.IsInvalid(err) {
			change.Note = "can't be changed in place: " + err.Error()
		}
	}
	if reflect.DeepEqual(withoutServerFields(live).Object, withoutServerFields(stored).Object) {
		return change
	}
	change.Action, change.sides = treeConfigure, survey.Sides{Live: live, Stored: stored}
	return change
}

// undeclared returns the deletions of the objects of a kind that have a tree's label and are not declared.
func (live liveObjects) undeclared(
	kind schema.GroupVersionKind, tree string, declared []*unstructured.Unstructured,
) []treeChange {
	var changes []treeChange
	isDeclared := ofKind(declared, kind)
	for _, name := range slices.Sorted(maps.Keys(live[kind])) {
		object := live[kind][name]
		if object.GetLabels()[v1alpha1.TreeLabel] == tree && isDeclared[name] == nil &&
			object.GetDeletionTimestamp() == nil {
			changes = append(changes,
				treeChange{Action: treeDelete, sides: survey.Sides{Live: object}, kind: kind, name: name})
		}
	}
	return changes
}

// leftovers returns the deletions of what other trees would leave behind: if all namespaces of another tree move to
// this one, as when the root is renamed, then pruning by the label of this tree does not find the other objects of that
// tree. Warnings are about trees of which only some namespaces move, and about trees that have no namespaces.
func (live liveObjects) leftovers(
	root string, declared []*unstructured.Unstructured,
) (left []treeChange, warnings []string) {
	var others []string
	moving, all := map[string][]string{}, map[string]int{} // namespaces by their tree
	isDeclared := ofKind(declared, namespaceKind)
	for kind, objects := range live {
		for name, object := range objects {
			tree := object.GetLabels()[v1alpha1.TreeLabel]
			if tree == "" || tree == root || object.GetDeletionTimestamp() != nil {
				continue
			}
			others = append(others, tree)
			if kind != namespaceKind {
				continue
			}
			if all[tree]++; isDeclared[name] != nil {
				moving[tree] = append(moving[tree], name)
			}
		}
	}
	for _, tree := range slices.Compact(slices.Sorted(slices.Values(others))) {
		prune := fmt.Sprintf("prune it with the selector '%s in (%s,%s)'", v1alpha1.TreeLabel, root, tree)
		var remains []treeChange
		for _, kind := range otherKinds {
			remains = append(remains, live.undeclared(kind, tree, declared)...)
		}
		switch {
		case len(moving[tree]) > 0 && len(moving[tree]) < all[tree]:
			slices.Sort(moving[tree])
			warnings = append(warnings, fmt.Sprintf("%s of tree %s move to tree %s: %s",
				output.Count(len(moving[tree]), "namespace"), tree, root, output.FirstFew(moving[tree])))
		case len(remains) == 0:
		case len(moving[tree]) > 0:
			for i := range remains {
				remains[i].Note = fmt.Sprintf("is left of tree %s, which all namespaces leave: %s", tree, prune)
			}
			left = append(left, remains...)
		case all[tree] == 0:
			warnings = append(warnings, fmt.Sprintf("tree %s has no namespaces, and %s: if it is now called %s, %s",
				tree, output.Count(len(remains), "object"), root, prune))
		}
	}
	return left, warnings
}

// ofKind returns the objects of a kind by name.
func ofKind(objects []*unstructured.Unstructured, kind schema.GroupVersionKind) map[string]*unstructured.Unstructured {
	byName := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		if object.GroupVersionKind() == kind {
			byName[object.GetName()] = object
		}
	}
	return byName
}

// withDeclared returns a copy of a live object with what a tree declares. Other labels and annotations stay, and so
// does the rest of a Namespace, since the tree declares nothing else about it.
func withDeclared(live, declared *unstructured.Unstructured) *unstructured.Unstructured {
	wanted := withoutDefaults(live)
	if live.GetKind() != namespaceKind.Kind {
		for _, field := range slices.Collect(maps.Keys(wanted.Object)) {
			if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, field) {
				delete(wanted.Object, field)
			}
		}
		for field, value := range declared.Object {
			if field != "metadata" {
				wanted.Object[field] = value
			}
		}
		if _, aggregated := declared.Object["aggregationRule"]; aggregated && live.Object["rules"] != nil {
			wanted.Object["rules"] = live.Object["rules"] // set by a controller of Kubernetes
		}
	}
	wanted.SetLabels(labels.Merge(live.GetLabels(), declared.GetLabels()))
	if annotations := labels.Merge(live.GetAnnotations(), declared.GetAnnotations()); len(annotations) > 0 {
		wanted.SetAnnotations(annotations)
	}
	return wanted
}

// withoutDefaults returns a copy of an object without the defaults that the API server filled in. An object that is as
// declared then equals the declaration, and needs no dry run.
func withoutDefaults(live *unstructured.Unstructured) *unstructured.Unstructured {
	bare := live.DeepCopy()
	if live.GetKind() != templateKind.Kind {
		return bare
	}
	for field, usual := range map[string]string{
		"driftPolicy": string(v1alpha1.DriftCorrect), "failurePolicy": string(v1alpha1.FailureFail),
	} {
		if value, _, _ := unstructured.NestedString(bare.Object, "spec", field); value == usual {
			unstructured.RemoveNestedField(bare.Object, "spec", field)
		}
	}
	return bare
}
