package diff

import (
	"iter"
	"maps"
	"slices"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// report holds the differences in namespaces. It is the output of diff -o json.
type report struct {
	Different  int               `json:"different"`
	Namespaces []namespaceReport `json:"namespaces"`
	// Unknown has a message for each kind, template or object that could not be compared.
	Unknown []string `json:"unknown,omitempty"`
}

type namespaceReport struct {
	Name string `json:"name"`
	// NotPopulated is the reason why no template populates the namespace, or empty.
	NotPopulated string `json:"notPopulated,omitempty"`
	// Unchanged is the number of objects that equal their declarations. Objects holds the other objects.
	Unchanged int            `json:"unchanged"`
	Objects   []objectReport `json:"objects,omitempty"`
}

type objectReport struct {
	Object    string          `json:"object"`
	Template  string          `json:"template"`
	Action    populate.Action `json:"action"`
	Reason    string          `json:"reason"`
	Drifted   bool            `json:"drifted,omitempty"`
	Different bool            `json:"different"`
	change    populate.Change
}

// newReport returns the report on namespaces. ReadErrs are the errors for what the user may not read.
func newReport(namespaces iter.Seq[survey.Namespace], readErrs []error) *report {
	r := &report{Namespaces: []namespaceReport{}}
	unknown := map[string]bool{}
	for _, err := range readErrs {
		unknown[err.Error()] = true
	}
	for ns := range namespaces {
		shown := namespaceReport{Name: ns.Namespace.Name, NotPopulated: ns.Skipped}
		for _, broken := range ns.Broken {
			unknown[broken.Err.Error()] = true
		}
		for _, change := range ns.Changes {
			if change.Action == populate.Unchanged {
				shown.Unchanged++
				continue
			}
			object := newObjectReport(change)
			if object.Different {
				r.Different++
			}
			shown.Objects = append(shown.Objects, object)
		}
		r.Namespaces = append(r.Namespaces, shown)
	}
	r.Unknown = slices.Sorted(maps.Keys(unknown))
	return r
}

func newObjectReport(change populate.Change) objectReport {
	object := objectReport{
		Object: output.ChangedObject(change), Template: change.Template, Action: change.Action, Reason: change.Reason,
		Drifted: change.Drifted, Different: change.Differs(), change: change,
	}
	switch change.Action {
	case populate.Create, populate.Configure, populate.Prune, populate.Empty:
		object.Different = true
	case populate.Unchanged, populate.LeaveAlone, populate.Unknown:
	}
	return object
}

// isComplete reports whether everything could be compared.
func (r *report) isComplete() bool {
	return len(r.Unknown) == 0
}

// table returns a table with a row for each difference and for each object that could not be compared.
func (r *report) table() output.Table {
	table := output.Table{Columns: []string{"Namespace", "Object", "Template", "Action", "Reason"}}
	for _, ns := range r.Namespaces {
		for _, o := range ns.Objects {
			if o.Different || o.Action == populate.Unknown {
				table.Rows = append(table.Rows, []string{ns.Name, o.Object, o.Template, string(o.Action), o.Reason})
			}
		}
	}
	return table
}

// noteSummary prints notes about what is not shown as a difference, and the number of differences.
func (r *report) noteSummary(s cli.Session) {
	for _, unknown := range r.Unknown {
		s.Note("not compared: %s", unknown)
	}
	skipped := map[string][]string{}
	different := 0
	for _, ns := range r.Namespaces {
		if ns.NotPopulated != "" {
			skipped[ns.NotPopulated] = append(skipped[ns.NotPopulated], ns.Name)
		}
		if slices.ContainsFunc(ns.Objects, func(o objectReport) bool { return o.Different }) {
			different++
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		s.Note("not populated: %s: %s", output.FirstFew(skipped[reason]), reason)
	}
	r.noteLeftAlone(s)
	if r.Different == 0 {
		s.Note("no differences in %s", output.Count(len(r.Namespaces), "namespace"))
		return
	}
	s.Note("%s in %d of %s", output.Count(r.Different, "difference"), different,
		output.Count(len(r.Namespaces), "namespace"))
}

// noteLeftAlone prints a note for each reason why the operator leaves objects alone.
func (r *report) noteLeftAlone(s cli.Session) {
	objects, namespaces := map[string][]string{}, map[string][]string{}
	for _, ns := range r.Namespaces {
		for _, o := range ns.Objects {
			if o.Action == populate.LeaveAlone && !o.Different {
				objects[o.Reason] = append(objects[o.Reason], o.Object)
				namespaces[o.Reason] = append(namespaces[o.Reason], ns.Name)
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(objects)) {
		s.Note("left alone: %s in %s: %s", output.FirstFew(objects[reason]), output.FirstFew(namespaces[reason]),
			reason)
	}
}

// noteDifferences prints a note with the reason for each difference.
func (r *report) noteDifferences(s cli.Session) {
	for _, ns := range r.Namespaces {
		for _, o := range ns.Objects {
			if o.Different {
				s.Note("%s: %s", ns.Name, output.Change(o.change))
			}
		}
	}
}
