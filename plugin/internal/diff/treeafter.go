package diff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// treeAfter is what the operator would find once a tree was applied, and what the tree no longer has was pruned.
type treeAfter struct {
	index *match.Index
	// namespaces exist and are in the tree, or were, as the operator would place them. Those that are not adopted are placed as if
	// they were.
	namespaces []*corev1.Namespace
	notAdopted map[string]*hierarchy.NotAdoptedError
}

// after returns what the operator would find once a tree was applied.
func (live treeLive) after(root string, declared []*unstructured.Unstructured) (*treeAfter, error) {
	spaces, err := applied[v1alpha1.PolicySpace](live, treeKinds[1].Kind, root, declared)
	if err != nil {
		return nil, err
	}
	templates, err := applied[v1alpha1.NamespaceTemplate](live, treeKinds[2].Kind, root, declared)
	if err != nil {
		return nil, err
	}
	namespaces, err := applied[corev1.Namespace](live, treeKinds[0].Kind, root, declared)
	if err != nil {
		return nil, err
	}
	isOfTree := map[string]bool{}
	for name, space := range live[treeKinds[1]] {
		isOfTree[name] = space.GetLabels()[v1alpha1.TreeLabel] == root
	}
	for _, space := range spaces {
		isOfTree[space.Name] = isOfTree[space.Name] || space.Labels[v1alpha1.TreeLabel] == root
	}
	after := &treeAfter{index: match.NewIndex(templates...), notAdopted: map[string]*hierarchy.NotAdoptedError{}}
	forest := hierarchy.NewForest(spaces)
	isDeclared := ofKind(declared, treeKinds[0])
	for _, ns := range namespaces {
		if ns.UID == "" || ns.DeletionTimestamp != nil {
			continue // new, with nothing in it, or going with all that is in it
		}
		placed, err := forest.Placed(ns)
		if refused, is := errors.AsType[*hierarchy.NotAdoptedError](err); is && isDeclared[ns.Name] != nil {
			after.notAdopted[ns.Name] = refused
			metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AdoptAnnotation, "true")
			placed, _ = forest.Placed(ns)
		}
		concerns := func(space string) bool { return isOfTree[space] }
		if slices.ContainsFunc(hierarchy.SpacesOf(ns), concerns) || slices.ContainsFunc(hierarchy.SpacesOf(placed), concerns) {
			after.namespaces = append(after.namespaces, placed)
		}
	}
	return after, nil
}

// applied returns the objects of a kind that there would be once a tree was applied, in ascending order of names. A template that the
// tree no longer has is being deleted, so that what it populated goes.
func applied[T any](live treeLive, kind, root string, declared []*unstructured.Unstructured) ([]*T, error) {
	all := map[string]*unstructured.Unstructured{}
	for gvk, objects := range live {
		for name, object := range objects {
			switch isOfTree := object.GetLabels()[v1alpha1.TreeLabel] == root; {
			case gvk.Kind != kind:
			case isOfTree && kind == treeKinds[2].Kind:
				now := metav1.Now()
				all[name] = object.DeepCopy()
				all[name].SetDeletionTimestamp(&now)
			case !isOfTree:
				all[name] = object
			}
		}
		if gvk.Kind == kind {
			for name, object := range ofKind(declared, gvk) {
				if all[name] = object; objects[name] != nil {
					all[name] = wantedOf(objects[name], object)
				}
			}
		}
	}
	typed := make([]*T, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		one := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all[name].Object, one); err != nil {
			return nil, fmt.Errorf("read %s %s: %w", kind, name, err)
		}
		typed = append(typed, one)
	}
	return typed, nil
}

// deletions returns the objects that the operator would delete in the namespaces, and what could not be read. With contents, they come
// with what is in them.
func (after *treeAfter) deletions(ctx context.Context, c *cluster.Cluster, contents bool) ([]treeChange, []survey.Unreadable, error) {
	if len(after.namespaces) == 0 {
		return nil, nil, nil
	}
	found, err := survey.Compare(ctx, c, after.index, after.namespaces, survey.Scope{Everywhere: true})
	if err != nil {
		return nil, nil, err
	}
	type candidate struct {
		namespace string
		populate.Change
	}
	type answer struct {
		change treeChange
		err    error
	}
	var candidates []candidate
	for ns := range found.Namespaces() {
		for _, change := range ns.Changes {
			// What takes a declared object's place is deleted if it can't be changed into that.
			if change.Action == populate.Prune || change.Occupied {
				candidates = append(candidates, candidate{ns.Namespace.Name, change})
			}
		}
	}
	var deleted []treeChange
	var errs []error
	for _, a := range cluster.Each(candidates, func(one candidate) answer {
		change := treeChange{
			Namespace: one.namespace, Action: treeDelete, Note: one.Reason, kind: one.Kind, name: one.Name,
		}
		if after.notAdopted[one.namespace] != nil {
			change.Action = treeDeleteIfAdopted
		}
		if !contents && !one.Occupied {
			return answer{change: change}
		}
		sides, err := survey.See(ctx, c, one.namespace, one.Change)
		if apierrors.IsForbidden(err) {
			return answer{change: change}
		}
		change.sides = sides
		if one.Occupied {
			change.Note = "it can't be changed in place: it is deleted and created anew"
			if !sides.Replaced {
				change.Action = ""
			}
		}
		return answer{change, err}
	}) {
		errs = append(errs, a.err)
		if a.change.Action != "" {
			deleted = append(deleted, a.change)
		}
	}
	return deleted, found.Unreadable, errors.Join(errs...)
}

// markLeftAlone says of the Namespaces that are not adopted that they are left alone.
func (after *treeAfter) markLeftAlone(changes []treeChange) []treeChange {
	for _, name := range slices.Sorted(maps.Keys(after.notAdopted)) {
		at := slices.IndexFunc(changes, func(change treeChange) bool { return change.kind == treeKinds[0] && change.name == name })
		if at < 0 {
			at = len(changes)
			changes = append(changes, treeChange{kind: treeKinds[0], name: name})
		}
		changes[at].Action = treeLeaveAlone
		changes[at].Note = fmt.Sprintf("existed before tree %s and is not adopted, so it is left alone: kubectl nstpl hydrate --adopt takes it over",
			after.notAdopted[name].Tree)
	}
	return changes
}

// leftovers returns what another tree would leave behind if all its namespaces moved to this one, as when the root is renamed: nothing
// that prunes by the label of one tree finds it. Warnings are about other trees that namespaces move from, and about those that have
// none any more.
func (live treeLive) leftovers(root string, declared []*unstructured.Unstructured) (left []treeChange, warnings []string) {
	var others []string
	moving, all := map[string][]string{}, map[string]int{}
	isDeclared := ofKind(declared, treeKinds[0])
	for kind, objects := range live {
		for name, object := range objects {
			tree := object.GetLabels()[v1alpha1.TreeLabel]
			if tree == "" || tree == root || object.GetDeletionTimestamp() != nil {
				continue
			}
			others = append(others, tree)
			if kind != treeKinds[0] {
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
		for _, kind := range treeKinds[1:] {
			remains = append(remains, live.remaining(kind, tree, declared)...)
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

// explainDeletions sums up what would be deleted in namespaces.
func (d *diff) explainDeletions(changes []treeChange) {
	for _, kind := range []struct{ action, when string }{
		{treeDelete, ""}, {treeDeleteIfAdopted, " once the tree takes over their namespaces"},
	} {
		var objects, namespaces []string
		for _, change := range changes {
			if change.Namespace != "" && change.Action == kind.action {
				objects = append(objects, change.Object)
				namespaces = append(namespaces, change.Namespace)
			}
		}
		if len(objects) > 0 {
			d.Note("WARNING: %s in %s would be DELETED%s: %s", output.Count(len(objects), "object"), output.FirstFew(namespaces),
				kind.when, output.FirstFew(objects))
		}
	}
}
