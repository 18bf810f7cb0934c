package diff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubectldiff "k8s.io/kubectl/pkg/cmd/diff"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// treeChange is the change of an object if a tree were applied and the objects that it no longer declares were pruned.
type treeChange struct {
	Ref output.ObjectRef `json:"object"`
	// Namespace is set only for an object that the operator would delete in a namespace of the tree.
	Namespace string `json:"namespace,omitempty"`
	Action    action `json:"action"`
	// Fields are the fields that differ, if the action is Configure.
	Fields []field `json:"fields,omitempty"`
	// Note is the reason for the action, or why the change is an estimate. It may be empty.
	Note string `json:"message,omitempty"`

	// Object is the name of the object in kubectl's notation.
	Object string `json:"-"`
	kind   schema.GroupVersionKind
	name   string
	sides  survey.Sides
}

// treeReport is the output of diff --tree -o json.
type treeReport struct {
	metav1.TypeMeta `json:",inline"`

	DeletedNamespaces []string     `json:"deletedNamespaces"`
	Items             []treeChange `json:"items"`
}

func (c treeChange) deletesNamespace() bool {
	return c.Action == actionDelete && c.kind == namespaceKind
}

// runTree compares the tree in a directory with the cluster. It returns an error if there are no differences, but not
// everything could be compared.
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
	changes, unreadable, err := d.compareTree(ctx, c, tree.Root.Name, declared)
	done()
	if err != nil {
		return false, err
	}
	if err := d.writeTree(changes, unreadable); err != nil {
		return false, err
	}
	if len(changes) == 0 && len(unreadable) > 0 {
		return false, errIncomplete
	}
	return len(changes) > 0, nil
}

// compareTree returns the changes, with deletions of namespaces first, and the kinds that could not be listed.
func (d *diff) compareTree(
	ctx context.Context, c *cluster.Cluster, root string, declared []*unstructured.Unstructured,
) (changes []treeChange, unreadable []survey.Unreadable, err error) {
	live, err := readLiveObjects(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	by, err := d.follower(ctx, c, root)
	if err != nil {
		return nil, nil, err
	}
	if by != nil {
		declared = live.followed(by, declared)
	}
	if changes, err = live.compare(ctx, c, root, declared, by); err != nil {
		return nil, nil, err
	}
	leftovers, warnings := live.leftovers(root, declared)
	for _, warning := range warnings {
		d.Note("Warning: %s", warning)
	}
	applied, err := live.apply(root, declared, by)
	if err != nil {
		return nil, nil, err
	}
	for _, err := range applied.indexTemplates(ctx, c) {
		d.Note("Warning: %v", err)
	}
	deleted, unreadable, err := applied.deletions(ctx, c, d.output.Format == "")
	if err != nil {
		return nil, nil, err
	}
	changes = slices.Concat(applied.markNotAdopted(changes, live, by), leftovers, deleted)
	for i := range changes {
		changes[i].Object = output.Object(changes[i].kind.GroupKind(), changes[i].name)
		changes[i].Ref = output.NewObjectRef(changes[i].kind, changes[i].Namespace, changes[i].name)
	}
	others := slices.DeleteFunc(slices.Clone(changes), treeChange.deletesNamespace)
	changes = slices.DeleteFunc(changes, func(change treeChange) bool { return !change.deletesNamespace() })
	return append(changes, others...), unreadable, nil
}

func (d *diff) writeTree(changes []treeChange, unreadable []survey.Unreadable) error {
	for _, kind := range unreadable {
		d.Note("not compared: %v", kind)
	}
	var deletedNamespaces []string
	for _, change := range changes {
		switch {
		case change.Namespace != "" && d.output.Format == "":
			d.Note("%s: %s: %s", change.Namespace, change.Object, change.Note)
		case change.Namespace == "" && change.Note != "":
			d.Note("%s %s", change.Object, change.Note)
		}
		if change.deletesNamespace() {
			deletedNamespaces = append(deletedNamespaces, change.name)
		}
	}
	switch names := strings.Join(deletedNamespaces, ", "); len(deletedNamespaces) {
	case 0:
	case 1:
		d.Note("WARNING: 1 namespace is no longer in the tree and would be DELETED with everything in it: %s", names)
	default:
		d.Note("WARNING: %d namespaces are no longer in the tree and would be DELETED with everything in them: %s",
			len(deletedNamespaces), names)
	}
	d.noteDeletions(changes)
	if d.output.Format != "" {
		return d.printTree(changes, deletedNamespaces)
	}
	if len(changes) == 0 {
		d.Note("no differences")
		return nil
	}
	// The diff program sorts files by name. It runs twice, so that deleted namespaces come first.
	rest := slices.IndexFunc(changes, func(change treeChange) bool { return !change.deletesNamespace() })
	if rest < 0 {
		rest = len(changes)
	}
	return errors.Join(d.showUnifiedTree(changes[:rest]), d.showUnifiedTree(changes[rest:]))
}

// printTree prints the changes in the format of the flag --output.
func (d *diff) printTree(changes []treeChange, deletedNamespaces []string) error {
	changes, err := cli.Sorted(&d.output, changes)
	if err != nil {
		return err
	}
	switch d.output.Format {
	case cli.FormatTable:
		return d.output.PrintTable(d.Out, treeTable(changes))
	case cli.FormatName:
		for _, change := range changes {
			output.Line(d.Out, "%s", change.Object)
		}
		return nil
	}
	return d.writeTreeReport(changes, deletedNamespaces)
}

// writeTreeReport writes the changes as a TreeDiffReport, with the fields of each changed object.
func (d *diff) writeTreeReport(changes []treeChange, deletedNamespaces []string) error {
	report := treeReport{
		TypeMeta:          metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TreeDiffReport"},
		DeletedNamespaces: append([]string{}, deletedNamespaces...), Items: append([]treeChange{}, changes...),
	}
	for i := range report.Items {
		change := &report.Items[i]
		if change.Action != actionConfigure || change.sides.Live == nil || change.sides.Stored == nil {
			continue
		}
		var err error
		if change.Fields, err = compareSides(change.sides.Live, change.sides); err != nil {
			return fmt.Errorf("%s: %w", change.Object, err)
		}
	}
	_, err := d.output.PrintReport(d.Out, report)
	return err
}

// noteDeletions prints a warning with the number of objects that would be deleted in namespaces.
func (d *diff) noteDeletions(changes []treeChange) {
	for _, kind := range []struct {
		action
		when string
	}{
		{actionDelete, ""}, {actionDeleteIfAdopted, " once the tree adopts their namespaces"},
	} {
		var objects, namespaces []string
		for _, change := range changes {
			if change.Namespace != "" && change.Action == kind.action {
				objects = append(objects, change.Object)
				namespaces = append(namespaces, change.Namespace)
			}
		}
		if len(objects) > 0 {
			d.Note("WARNING: %s in %s would be DELETED%s: %s", output.Count(len(objects), "object"),
				output.FirstFew(namespaces), kind.when, output.FirstFew(objects))
		}
	}
}

// treeTable returns a table with a row for each change. It has a column for namespaces only if objects in namespaces
// would be deleted.
func treeTable(changes []treeChange) output.Table {
	table := output.Table{Columns: []string{"Object", "Action"}}
	inNamespaces := slices.ContainsFunc(changes, func(change treeChange) bool { return change.Namespace != "" })
	if inNamespaces {
		table.Columns = append(table.Columns, "Namespace")
	}
	for _, change := range changes {
		row := []string{change.Object, change.Action.words()}
		if inNamespaces {
			row = append(row, change.Namespace)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

func (d *diff) showUnifiedTree(changes []treeChange) error {
	if len(changes) == 0 {
		return nil
	}
	differ, err := kubectldiff.NewDiffer("LIVE", "TREE")
	if err != nil {
		return err
	}
	defer differ.TearDown()
	for _, change := range changes {
		// A tree declares no status.
		sides := survey.Sides{
			Live: survey.WithoutStatus(change.sides.Live), Stored: survey.WithoutStatus(change.sides.Stored),
		}
		if err := writeSides(differ, fileName(change.kind, change.Namespace, change.name), sides); err != nil {
			return fmt.Errorf("%s: %w", change.Object, err)
		}
	}
	return d.runDiffer(differ)
}
