package diff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	kubectldiff "k8s.io/kubectl/pkg/cmd/diff"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// The kinds that a tree is compiled to.
var treeKinds = []schema.GroupVersionKind{
	corev1.SchemeGroupVersion.WithKind("Namespace"),
	v1alpha1.GroupVersion.WithKind("PolicySpace"),
	v1alpha1.GroupVersion.WithKind("NamespaceTemplate"),
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
}

// Actions of what a tree would change.
const (
	treeCreate    = "create"
	treeConfigure = "configure"
	treeDelete    = "delete"
	// treeLeaveAlone is for a Namespace that existed before the tree and is not adopted, treeDeleteIfAdopted for what is in it.
	treeLeaveAlone      = "leave alone"
	treeDeleteIfAdopted = "delete if adopted"
)

// treeChange is an object that would change if the cluster were brought to a tree, and what the tree has no longer deleted.
type treeChange struct {
	Object string `json:"object"`
	// Namespace is that of an object in a namespace of the tree, which the operator would delete.
	Namespace string `json:"namespace,omitempty"`
	Action    string `json:"action"`
	// Note says why it is deleted or left alone, or what is not known about it.
	Note string `json:"note,omitempty"`

	kind  schema.GroupVersionKind
	name  string
	sides survey.Sides
}

// treeLive holds the objects of the cluster of the kinds that a tree is compiled to, by name.
type treeLive map[schema.GroupVersionKind]map[string]*unstructured.Unstructured

func (c treeChange) deletesNamespace() bool {
	return c.Action == treeDelete && c.kind == treeKinds[0]
}

// runTree tells whether the cluster differs from a tree.
func (d *diff) runTree(ctx context.Context) (different bool, err error) {
	tree, err := d.ValidTree(d.tree)
	if err != nil {
		return false, err
	}
	declared, err := tree.Compile(v1alpha1.AuthoritativeDelete)
	if err != nil {
		return false, err
	}
	c, err := d.Connect()
	if err != nil {
		return false, err
	}
	done := d.Progress("comparing " + tree.Root.Name + " with the cluster")
	changes, unread, err := d.compareTree(ctx, c, tree.Root.Name, declared)
	done()
	if err != nil {
		return false, err
	}
	if err := d.writeTree(changes, unread); err != nil {
		return false, err
	}
	if len(changes) == 0 && len(unread) > 0 {
		return false, errors.New("nothing differs in what could be compared, but not everything could be: see above")
	}
	return len(changes) > 0, nil
}

// compareTree returns what would change, and what could not be read. Deletions of namespaces come first.
func (d *diff) compareTree(
	ctx context.Context, c *cluster.Cluster, root string, declared []*unstructured.Unstructured,
) (changes []treeChange, unread []survey.Unreadable, err error) {
	live, err := readTree(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if changes, err = compareObjects(ctx, c, live, root, declared); err != nil {
		return nil, nil, err
	}
	left, warnings := live.leftovers(root, declared)
	for _, warning := range warnings {
		d.Note("Warning: %s", warning)
	}
	after, err := live.after(root, declared)
	if err != nil {
		return nil, nil, err
	}
	deleted, unread, err := after.deletions(ctx, c, d.output.Format == "")
	if err != nil {
		return nil, nil, err
	}
	changes = slices.Concat(after.markLeftAlone(changes), left, deleted)
	for i := range changes {
		changes[i].Object = output.Object(changes[i].kind.GroupKind(), changes[i].name)
	}
	slices.SortStableFunc(changes, func(a, b treeChange) int {
		switch {
		case a.deletesNamespace() == b.deletesNamespace():
			return 0
		case a.deletesNamespace():
			return -1
		}
		return 1
	})
	return changes, unread, nil
}

// readTree reads a list for each kind.
func readTree(ctx context.Context, c *cluster.Cluster) (treeLive, error) {
	live := treeLive{}
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

// compareObjects asks the API server by a dry run about each object that is not as declared.
func compareObjects(
	ctx context.Context, c *cluster.Cluster, live treeLive, root string, declared []*unstructured.Unstructured,
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
		found := cluster.Each(wanted, func(object *unstructured.Unstructured) treeChange {
			return compareObject(ctx, objects, live[kind][object.GetName()], object)
		})
		changes = append(changes, slices.DeleteFunc(found, func(change treeChange) bool { return change.Action == "" })...)
		changes = append(changes, live.remaining(kind, root, declared)...)
	}
	return changes, nil
}

// remaining returns the objects of a kind with a tree's label that are not declared.
func (live treeLive) remaining(kind schema.GroupVersionKind, tree string, declared []*unstructured.Unstructured) []treeChange {
	var remaining []treeChange
	isDeclared := ofKind(declared, kind)
	for _, name := range slices.Sorted(maps.Keys(live[kind])) {
		object := live[kind][name]
		if object.GetLabels()[v1alpha1.TreeLabel] == tree && isDeclared[name] == nil && object.GetDeletionTimestamp() == nil {
			remaining = append(remaining, treeChange{Action: treeDelete, sides: survey.Sides{Live: object}, kind: kind, name: name})
		}
	}
	return remaining
}

// ofKind returns the objects of a kind by name.
func ofKind(objects []*unstructured.Unstructured, kind schema.GroupVersionKind) map[string]*unstructured.Unstructured {
	found := map[string]*unstructured.Unstructured{}
	for _, object := range objects {
		if object.GroupVersionKind() == kind {
			found[object.GetName()] = object
		}
	}
	return found
}

// compareObject returns what would become of an object. Its action is empty if that is nothing.
func compareObject(ctx context.Context, objects dynamic.ResourceInterface, live, declared *unstructured.Unstructured) treeChange {
	change := treeChange{kind: declared.GroupVersionKind(), name: declared.GetName()}
	if live == nil {
		change.Action, change.sides = treeCreate, survey.Sides{Stored: declared}
		return change
	}
	wanted := wantedOf(live, declared)
	if reflect.DeepEqual(wanted.Object, withoutDefaults(live).Object) {
		return change
	}
	stored, err := objects.Update(ctx, wanted, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		// What it comes to can still be seen.
		stored, change.Note = wanted, "is estimated: "+err.Error()
		if apierrors.IsInvalid(err) {
			change.Note = "can't be changed in place: " + err.Error()
		}
	}
	if reflect.DeepEqual(tidy(live).Object, tidy(stored).Object) {
		return change
	}
	change.Action, change.sides = treeConfigure, survey.Sides{Live: live, Stored: stored}
	return change
}

// wantedOf returns a live object as a tree declares it. What others add to its labels and annotations stays, as does the rest of a
// Namespace, of which the tree says nothing.
func wantedOf(live, declared *unstructured.Unstructured) *unstructured.Unstructured {
	wanted := withoutDefaults(live)
	if live.GetKind() != treeKinds[0].Kind {
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
			wanted.Object["rules"] = live.Object["rules"] // a controller's
		}
	}
	wanted.SetLabels(labels.Merge(live.GetLabels(), declared.GetLabels()))
	if annotations := labels.Merge(live.GetAnnotations(), declared.GetAnnotations()); len(annotations) > 0 {
		wanted.SetAnnotations(annotations)
	}
	return wanted
}

// withoutDefaults leaves out what the API server filled in, so that an object which is as declared is seen to be without a dry run.
func withoutDefaults(live *unstructured.Unstructured) *unstructured.Unstructured {
	bare := live.DeepCopy()
	if live.GetKind() != "NamespaceTemplate" {
		return bare
	}
	for field, usual := range map[string]string{"driftPolicy": string(v1alpha1.DriftCorrect), "failurePolicy": string(v1alpha1.FailureFail)} {
		if value, _, _ := unstructured.NestedString(bare.Object, "spec", field); value == usual {
			unstructured.RemoveNestedField(bare.Object, "spec", field)
		}
	}
	return bare
}

func (d *diff) writeTree(changes []treeChange, unread []survey.Unreadable) error {
	for _, kind := range unread {
		d.Note("unknown: %v", kind)
	}
	var doomed []string
	for _, change := range changes {
		switch {
		case change.Namespace != "" && d.output.Format == "":
			d.Note("%s: %s: %s", change.Namespace, change.Object, change.Note)
		case change.Namespace == "" && change.Note != "":
			d.Note("%s %s", change.Object, change.Note)
		}
		if change.deletesNamespace() {
			doomed = append(doomed, change.name)
		}
	}
	if len(doomed) > 0 {
		d.Note("WARNING: the tree has %s no longer: DELETED with everything in it would be %s",
			output.Count(len(doomed), "namespace"), strings.Join(doomed, ", "))
	}
	d.explainDeletions(changes)
	switch d.output.Format {
	case cli.FormatTable:
		return treeTable(changes).Print(d.Out, false)
	case cli.FormatJSON:
		return output.JSON(d.Out, map[string]any{"deletedNamespaces": append([]string{}, doomed...), "changes": append([]treeChange{}, changes...)})
	}
	if len(changes) == 0 {
		d.Note("no differences")
		return nil
	}
	// A program that compares folders has an order of its own: what is deleted is compared before.
	at := slices.IndexFunc(changes, func(change treeChange) bool { return !change.deletesNamespace() })
	if at < 0 {
		at = len(changes)
	}
	return errors.Join(d.showTree(changes[:at]), d.showTree(changes[at:]))
}

// treeTable has a column for namespaces only if objects in namespaces would be deleted.
func treeTable(changes []treeChange) output.Table {
	table := output.Table{Columns: []string{"Object", "Action"}}
	inNamespaces := slices.ContainsFunc(changes, func(change treeChange) bool { return change.Namespace != "" })
	if inNamespaces {
		table.Columns = append(table.Columns, "Namespace")
	}
	for _, change := range changes {
		row := []string{change.Object, change.Action}
		if inNamespaces {
			row = append(row, change.Namespace)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

func (d *diff) showTree(changes []treeChange) error {
	if len(changes) == 0 {
		return nil
	}
	differ, err := kubectldiff.NewDiffer("LIVE", "TREE")
	if err != nil {
		return err
	}
	defer differ.TearDown()
	for _, change := range changes {
		for _, side := range []*unstructured.Unstructured{change.sides.Live, change.sides.Stored} {
			if side != nil {
				delete(side.Object, "status") // no tree says it
			}
		}
		if err := writeSides(differ, fileName(change.kind, change.Namespace, change.name), change.sides); err != nil {
			return fmt.Errorf("%s: %w", change.Object, err)
		}
	}
	return d.runDiffer(differ)
}
