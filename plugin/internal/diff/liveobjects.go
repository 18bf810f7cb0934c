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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

var (
	namespaceKind   = corev1.SchemeGroupVersion.WithKind("Namespace")
	policySpaceKind = v1alpha1.GroupVersion.WithKind("PolicySpace")
	templateKind    = v1alpha1.GroupVersion.WithKind("NamespaceTemplate")

	// otherKinds are the kinds of the objects of a compiled tree, other than Namespaces.
	otherKinds = []schema.GroupVersionKind{
		policySpaceKind, templateKind,
		rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
	}
	treeKinds = append([]schema.GroupVersionKind{namespaceKind}, otherKinds...)
)

// liveObjects holds the objects in the cluster, by kind and name, of all kinds of a compiled tree. They are read-only.
type liveObjects map[schema.GroupVersionKind]map[string]*unstructured.Unstructured

// readLiveObjects lists the objects in the cluster, kind by kind.
func readLiveObjects(ctx context.Context, c *cluster.Cluster) (liveObjects, error) {
	live := liveObjects{}
	for _, kind := range treeKinds {
		mapping, err := c.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return nil, cluster.NotInstalledError{}
		}
		if err != nil {
			return nil, err
		}
		objects, err := c.ListObjects(ctx, mapping.Resource, "", "")
		if err != nil {
			return nil, err
		}
		live[kind] = map[string]*unstructured.Unstructured{}
		for _, object := range objects {
			live[kind][object.GetName()] = object
		}
	}
	return live, nil
}

// compare returns which objects would change if the declared objects of a tree were applied, and which objects pruning
// would delete. It sends a dry run for each object that differs from its declaration.
func (live liveObjects) compare(
	ctx context.Context, c *cluster.Cluster, tree string, declared []*unstructured.Unstructured, by follower,
) ([]treeChange, error) {
	var changes []treeChange
	for _, kind := range treeKinds {
		mapping, err := c.Mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, err
		}
		objects := c.Dynamic.Resource(mapping.Resource)
		var ofThisKind []*unstructured.Unstructured
		for _, object := range declared {
			if object.GroupVersionKind() == kind {
				ofThisKind = append(ofThisKind, object)
			}
		}
		compared := cluster.Each(ofThisKind, func(object *unstructured.Unstructured) treeChange {
			return compareObject(ctx, objects, live[kind][object.GetName()], object, by)
		})
		changes = append(changes, slices.DeleteFunc(compared, func(change treeChange) bool {
			return change.Action == ""
		})...)
		changes = append(changes, live.undeclared(kind, tree, declared)...)
	}
	return changes, nil
}

// compareObject returns the change of an object. Its action is empty if the object would not change.
func compareObject(
	ctx context.Context, objects dynamic.ResourceInterface, live, declared *unstructured.Unstructured, by follower,
) treeChange {
	change := treeChange{kind: declared.GroupVersionKind(), name: declared.GetName()}
	if live == nil {
		change.Action, change.sides = actionCreate, survey.Sides{Stored: declared}
		return change
	}
	desired := withDeclared(live, declared, by)
	if reflect.DeepEqual(desired.Object, withoutDefaults(live).Object) {
		return change
	}
	var stored *unstructured.Unstructured
	err := retry.RetryOnConflict(retry.DefaultRetry, func() (err error) {
		stored, err = objects.Update(ctx, desired, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsConflict(err) {
			return err
		}
		// A controller, such as nstpl's operator, wrote the object since it was listed.
		latest, missing := objects.Get(ctx, live.GetName(), metav1.GetOptions{})
		if missing != nil {
			return missing
		}
		live, desired = latest, withDeclared(latest, declared, by)
		return err
	})
	if err != nil {
		stored, change.Note = desired, "is an estimate, because the dry run failed: "+err.Error()
		if apierrors.IsInvalid(err) {
			change.Note = "cannot be updated in place: " + err.Error()
		}
	}
	if reflect.DeepEqual(withoutServerFields(live).Object, withoutServerFields(stored).Object) {
		return change
	}
	change.Action, change.sides = actionConfigure, survey.Sides{Live: live, Stored: stored}
	return change
}

// kept returns, by UID, why objects stay although a tree no longer declares them: namespaces that are protected from
// deletion, and the policyspaces that they are in.
func (live liveObjects) kept(tree string, declared []*unstructured.Unstructured) map[types.UID]string {
	kept := map[types.UID]string{}
	isDeclared := ofKind(declared, namespaceKind)
	for name, ns := range live[namespaceKind] {
		if ns.GetLabels()[v1alpha1.TreeLabel] != tree || isDeclared[name] != nil || ns.GetDeletionTimestamp() != nil ||
			ns.GetAnnotations()[v1alpha1.DeletionProtectionAnnotation] != "true" {
			continue
		}
		kept[ns.GetUID()] = "is no longer in the tree, and stays because it is protected from deletion: to have it " +
			"deleted, a user with the verb unprotect on it must remove its annotation " +
			v1alpha1.DeletionProtectionAnnotation
		space := live[policySpaceKind][ns.GetLabels()[v1alpha1.PolicySpaceLabel]]
		for space != nil && kept[space.GetUID()] == "" {
			kept[space.GetUID()] = "is no longer in the tree, and stays while protected namespaces are in it, such as " + name
			parent, _, _ := unstructured.NestedString(space.Object, "spec", "parent") // "" if it is not a string
			space = live[policySpaceKind][parent]
		}
	}
	return kept
}

// undeclared returns the deletions of the objects of a kind that have the label of a tree and are not declared, and
// those of these objects that are kept.
func (live liveObjects) undeclared(
	kind schema.GroupVersionKind, tree string, declared []*unstructured.Unstructured,
) []treeChange {
	var changes []treeChange
	isDeclared, kept := ofKind(declared, kind), live.kept(tree, declared)
	for _, name := range slices.Sorted(maps.Keys(live[kind])) {
		object := live[kind][name]
		if object.GetLabels()[v1alpha1.TreeLabel] == tree && isDeclared[name] == nil &&
			object.GetDeletionTimestamp() == nil {
			change := treeChange{Action: actionDelete, sides: survey.Sides{Live: object}, kind: kind, name: name}
			if note := kept[object.GetUID()]; note != "" {
				change.Action, change.Note, change.sides = actionKeep, note, survey.Sides{}
			}
			changes = append(changes, change)
		}
	}
	return changes
}

// leftovers returns the deletions of the remaining objects of other trees. If all namespaces of another tree move to
// this tree, as when the root is renamed, the other objects of that tree remain: pruning selects objects by the label
// of this tree. The warnings name trees of which only some namespaces move, and trees that have objects but no
// namespaces.
func (live liveObjects) leftovers(
	root string, declared []*unstructured.Unstructured,
) (deletions []treeChange, warnings []string) {
	var otherTrees []string
	movingNames, namespaceCount := map[string][]string{}, map[string]int{} // by the current tree of the namespaces
	declaredNamespaces := ofKind(declared, namespaceKind)
	for kind, objects := range live {
		for name, object := range objects {
			tree := object.GetLabels()[v1alpha1.TreeLabel]
			if tree == "" || tree == root || object.GetDeletionTimestamp() != nil {
				continue
			}
			otherTrees = append(otherTrees, tree)
			if kind != namespaceKind {
				continue
			}
			if namespaceCount[tree]++; declaredNamespaces[name] != nil {
				movingNames[tree] = append(movingNames[tree], name)
			}
		}
	}
	for _, tree := range slices.Compact(slices.Sorted(slices.Values(otherTrees))) {
		moving := movingNames[tree]
		prune := fmt.Sprintf("prune it with the selector '%s in (%s,%s)'", v1alpha1.TreeLabel, root, tree)
		var remaining []treeChange
		for _, kind := range otherKinds {
			remaining = append(remaining, live.undeclared(kind, tree, declared)...)
		}
		switch {
		case len(moving) > 0 && len(moving) < namespaceCount[tree]:
			warnings = append(warnings, fmt.Sprintf("%s would move from tree %s to tree %s: %s",
				output.Count(len(moving), "namespace"), tree, root, output.FirstFew(moving)))
		case len(remaining) == 0:
		case len(moving) > 0:
			for i := range remaining {
				remaining[i].Note = fmt.Sprintf("would remain of tree %s after all its namespaces moved: %s", tree,
					prune)
			}
			deletions = append(deletions, remaining...)
		case namespaceCount[tree] == 0:
			warnings = append(warnings, fmt.Sprintf("tree %s has %s but no namespaces: if it was renamed to %s, %s",
				tree, output.Count(len(remaining), "object"), root, prune))
		}
	}
	return deletions, warnings
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

// withDeclared returns a copy of a live object with the fields that a tree declares. It keeps the labels and
// annotations of others. Of a Namespace it also keeps all other fields, since a tree declares only its metadata.
func withDeclared(live, declared *unstructured.Unstructured, by follower) *unstructured.Unstructured {
	desired := withoutDefaults(live)
	if live.GetKind() != namespaceKind.Kind {
		for _, field := range slices.Collect(maps.Keys(desired.Object)) {
			if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, field) {
				delete(desired.Object, field)
			}
		}
		for field, value := range declared.Object {
			if field != "metadata" {
				desired.Object[field] = value
			}
		}
		if _, aggregated := declared.Object["aggregationRule"]; aggregated && live.Object["rules"] != nil {
			desired.Object["rules"] = live.Object["rules"] // a Kubernetes controller sets them
		}
		keepOfRollouts(live, desired)
	}
	desired.SetLabels(labels.Merge(withoutRemoved(render.Labels, live, declared, by), declared.GetLabels()))
	desired.SetAnnotations(nil) // an empty map would differ from none
	annotations := labels.Merge(withoutRemoved(render.Annotations, live, declared, by), declared.GetAnnotations())
	if len(annotations) > 0 {
		desired.SetAnnotations(annotations)
	}
	return desired
}

// keepOfRollouts sets the fields of a desired template that administrators set, for example to pause its rollout,
// unless the tree declares them: nstpl-sync does not change them either.
func keepOfRollouts(live, desired *unstructured.Unstructured) {
	from, isMap := live.Object["spec"].(map[string]any)
	if live.GetKind() != templateKind.Kind || !isMap {
		return
	}
	spec, isMap := desired.Object["spec"].(map[string]any)
	if !isMap {
		return
	}
	spec = maps.Clone(spec)
	for _, field := range []string{"rollout", "revisionHistoryLimit"} {
		if _, isDeclared := spec[field]; !isDeclared && from[field] != nil {
			spec[field] = from[field]
		}
	}
	desired.Object["spec"] = spec
}

// withoutDefaults returns a copy of an object without the default values that the API server sets. The copy of an
// unchanged object equals its declaration, so it needs no dry run.
func withoutDefaults(live *unstructured.Unstructured) *unstructured.Unstructured {
	stripped := live.DeepCopy()
	if live.GetKind() != templateKind.Kind {
		return stripped
	}
	for field, defaultValue := range map[string]any{
		"driftPolicy": string(v1alpha1.DriftCorrect), "failurePolicy": string(v1alpha1.FailureFail),
		"revisionHistoryLimit": int64(v1alpha1.DefaultRevisionHistoryLimit),
	} {
		if value, _, _ := unstructured.NestedFieldNoCopy(stripped.Object, "spec", field); value == defaultValue {
			unstructured.RemoveNestedField(stripped.Object, "spec", field)
		}
	}
	return stripped
}
