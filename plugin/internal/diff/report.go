package diff

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/fields"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// report holds the differences in namespaces. It is the output of diff -o json.
type report struct {
	metav1.TypeMeta `json:",inline"`

	Summary summary `json:"summary"`
	// Items are the objects that differ from the templates, are left alone or could not be compared, in the order of
	// the namespaces.
	Items []*item `json:"items"`
	// NotPopulated lists the namespaces that are never populated or opted out, with the reasons. They are not compared,
	// although the summary counts them as namespaces.
	NotPopulated []notPopulated `json:"notPopulated,omitempty"`
	// Unknown has a message for each kind, template or object that could not be compared.
	Unknown []string `json:"unknown,omitempty"`

	// isRecorded reports whether the report has only what the operator recorded.
	isRecorded bool
	// lacksNamespace reports whether, of a cluster of which only that is known, nothing, or not everything, is known
	// about a namespace: the user may not read it, or the operator has not recorded everything about it.
	lacksNamespace bool
	// hasContexts reports whether the report is on several clusters.
	hasContexts bool
}

type summary struct {
	Namespaces          int `json:"namespaces"`
	DifferentNamespaces int `json:"differentNamespaces"`
	DifferentObjects    int `json:"differentObjects"`
	UnchangedObjects    int `json:"unchangedObjects"`
	// Actions are the numbers of different objects by action.
	Actions map[action]int `json:"actions"`
	// Failing is the number of objects that the API server would reject.
	Failing int `json:"failing"`
}

type notPopulated struct {
	Context    string   `json:"context,omitempty"`
	Message    string   `json:"message"`
	Namespaces []string `json:"namespaces"`
}

// item is an object in a namespace that is not as declared.
type item struct {
	// Context is that of the kubeconfig, or empty without --contexts.
	Context   string           `json:"context,omitempty"`
	Namespace string           `json:"namespace"`
	Ref       output.ObjectRef `json:"object"`
	Template  string           `json:"template"`
	Action    action           `json:"action"`
	Reason    string           `json:"message"`
	// Different reports whether the object differs from the templates.
	Different bool `json:"different"`
	// Drifted reports whether another client changed or deleted the object after the operator had applied it.
	Drifted bool `json:"drifted,omitempty"`
	// Fields are the fields that differ, if the object exists and is declared. The values of Secrets are masked.
	Fields []field `json:"fields,omitempty"`
	// Fails is the reason why the API server would reject the object, or empty.
	Fails string `json:"fails,omitempty"`
	// Estimate is the reason why Fields are an estimate or unknown, or empty.
	Estimate string `json:"estimate,omitempty"`
	// DryRunNamespace is the namespace in which the dry run was sent. If the same change has the same content in
	// several namespaces, it is sent in only one of them.
	DryRunNamespace string `json:"dryRunNamespace,omitempty"`

	// Object is the name of the object in kubectl's notation.
	Object string `json:"-"`
	change populate.Change
	// sides are the contents of the object, or of an object with the same content in DryRunNamespace.
	sides survey.Sides
}

// field is the difference of one field. From is nil if the field does not exist, and To if it would not exist.
type field struct {
	Field string `json:"field"`
	From  *any   `json:"from,omitempty"`
	To    *any   `json:"to,omitempty"`
	// Manager has the field managers that own the field now, other than the operator if there are any.
	Manager string `json:"manager,omitempty"`

	text string
}

func newField(change fields.Change, manager string) field {
	f := field{Field: change.Path.String(), Manager: manager, text: change.String()}
	if !change.Added {
		f.From = &change.From
	}
	if !change.Removed {
		f.To = &change.To
	}
	return f
}

// String returns the difference in one line: "spec.hard.pods 50 -> 60 (set by kubectl-patch)".
func (f field) String() string {
	if f.Manager == "" || f.Manager == v1alpha1.FieldManager {
		return f.text
	}
	return f.text + " (set by " + f.Manager + ")"
}

// newReport returns the report on namespaces. ReadErrs are the errors for what the user may not read.
func newReport(namespaces iter.Seq[survey.Namespace], readErrs []error) *report {
	r := &report{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "DiffReport"},
		Items:    []*item{},
	}
	unknown, skipped := map[string]bool{}, map[string][]string{}
	for _, err := range readErrs {
		unknown[err.Error()] = true
	}
	for ns := range namespaces {
		r.Summary.Namespaces++
		r.Summary.UnchangedObjects += ns.Unchanged
		name := ns.Namespace.Name
		if ns.Skipped != "" {
			skipped[ns.Skipped] = append(skipped[ns.Skipped], name)
		}
		for _, broken := range ns.BrokenTemplates() {
			unknown[broken.Message] = true
		}
		for _, change := range ns.Changes {
			if change.Action == populate.Unchanged {
				r.Summary.UnchangedObjects++
				continue
			}
			if isUnread(change) {
				unknown[output.ChangedObject(change)+": "+change.Reason] = true
			}
			r.Items = append(r.Items, newItem(name, change))
		}
	}
	r.Unknown = slices.Sorted(maps.Keys(unknown))
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		r.NotPopulated = append(r.NotPopulated, notPopulated{Message: reason, Namespaces: skipped[reason]})
	}
	r.summarize()
	return r
}

// merge returns one report on the clusters that were read, or nil if there is none. Without --contexts, it is the
// report on the cluster.
func merge(replies []cli.Reply[*report]) *report {
	var all *report
	for _, r := range replies {
		switch {
		case r.Value == nil:
			continue
		case r.Context == "":
			return r.Value
		case all == nil:
			all = newReport(slices.Values([]survey.Namespace(nil)), nil)
			all.hasContexts, all.isRecorded = true, true
		}
		all.isRecorded = all.isRecorded && r.Value.isRecorded
		all.lacksNamespace = all.lacksNamespace || r.Value.lacksNamespace
		all.Summary.Namespaces += r.Value.Summary.Namespaces
		all.Summary.UnchangedObjects += r.Value.Summary.UnchangedObjects
		for _, i := range r.Value.Items {
			i.Context = r.Context
			all.Items = append(all.Items, i)
		}
		for _, skipped := range r.Value.NotPopulated {
			skipped.Context = r.Context
			all.NotPopulated = append(all.NotPopulated, skipped)
		}
		for _, unknown := range r.Value.Unknown {
			all.Unknown = append(all.Unknown, r.Prefix()+unknown)
		}
	}
	if all != nil {
		all.summarize()
	}
	return all
}

// nameOrphaned says of the objects that templates leave behind that this is their deletionPolicy. Gone are deleted
// templates. The reason that the operator would give is only that they do not exist.
func (r *report) nameOrphaned(gone []*v1alpha1.NamespaceTemplate) {
	for _, i := range r.Items {
		for _, template := range gone {
			i.Reason = strings.ReplaceAll(i.Reason, fmt.Sprintf("template %s does not exist", template.Name),
				fmt.Sprintf("template %s is deleted; deletionPolicy is Orphan", template.Name))
		}
	}
}

// isUnread reports whether a copy could not be compared because of its source.
func isUnread(change populate.Change) bool {
	return change.Declared != nil && change.Declared.Unavailable != nil &&
		errors.Is(change.Err, change.Declared.Unavailable.Failure)
}

func newItem(namespace string, change populate.Change) *item {
	i := &item{
		Namespace: namespace, Object: output.ChangedObject(change), Template: change.Template,
		Ref:    output.NewObjectRef(change.Kind, namespace, change.Name),
		Action: actionOf(change), Reason: change.Reason, Drifted: change.Drifted, Different: change.Differs(),
		change: change,
	}
	if i.Action != actionLeaveAlone && i.Action != actionUnknown {
		i.Different = true
	}
	if change.Metadata != nil {
		i.Ref = output.NewObjectRef(change.Kind, "", change.Name)
	}
	return i
}

// summarize counts the items.
func (r *report) summarize() {
	r.Summary.Actions = map[action]int{}
	r.Summary.DifferentObjects, r.Summary.Failing = 0, 0
	namespaces := map[string]bool{}
	for _, i := range r.differences() {
		namespaces[i.Context+"/"+i.Namespace] = true
		r.Summary.DifferentObjects++
		r.Summary.Actions[i.Action]++
		if i.Fails != "" {
			r.Summary.Failing++
		}
	}
	r.Summary.DifferentNamespaces = len(namespaces)
}

// isComplete reports whether everything could be compared, or everything that the operator recorded is known.
func (r *report) isComplete() bool {
	return r.isRecorded && !r.lacksNamespace || len(r.Unknown) == 0
}

// differences returns the objects that differ from the templates.
func (r *report) differences() []*item {
	return slices.DeleteFunc(slices.Clone(r.Items), func(i *item) bool { return !i.Different })
}

// notPopulated returns the number of namespaces that are not populated, and so not compared.
func (r *report) notPopulated() (count int) {
	for _, skipped := range r.NotPopulated {
		count += len(skipped.Namespaces)
	}
	return count
}

// leftAlone returns the objects that the operator leaves alone, and that are not differences.
func (r *report) leftAlone() []*item {
	return slices.DeleteFunc(slices.Clone(r.Items), func(i *item) bool {
		return i.Action != actionLeaveAlone || i.Different
	})
}

// names prints the names of the objects that differ from the templates.
func (r *report) names(out io.Writer) {
	for _, i := range r.differences() {
		output.Line(out, "%s", i.Object)
	}
}

// table returns a table with a row for each field that differs, for each other difference, and for each object that
// could not be compared. A change that several namespaces have in common is in the table once, unless full is true.
// With leftAlone, it also has rows for the objects that are left alone.
func (r *report) table(s cli.Session, full, leftAlone bool) output.Table {
	table := output.Table{Columns: []string{"Namespace", "Object", "Template", "Action", "Change", "Reason"}}
	if r.hasContexts {
		table.Columns = append([]string{"Context"}, table.Columns...)
	}
	shown := slices.DeleteFunc(slices.Clone(r.Items), func(i *item) bool {
		return !i.Different && i.Action != actionUnknown && !leftAlone
	})
	for _, g := range groupsOf(shown, func(i *item) string {
		if full {
			return i.fullKey()
		}
		return i.groupKey() + "\x00" + i.Reason
	}) {
		i := g.items[0]
		reason := i.Reason
		if i.Fails != "" {
			reason = "would fail: " + i.Fails
		}
		reason = s.ForContext(i.Context).Commands(reason)
		object := i.Object
		if len(g.items) > 1 {
			object = i.sharedObject()
		}
		row := func(change string) []string {
			cells := []string{g.namespaces(), object, i.Template, i.Action.words(), change, reason}
			if r.hasContexts {
				cells = append([]string{i.Context}, cells...)
			}
			return cells
		}
		for _, f := range i.Fields {
			table.Rows = append(table.Rows, row(f.String()))
		}
		if len(i.Fields) == 0 {
			table.Rows = append(table.Rows, row(""))
		}
	}
	return table
}
