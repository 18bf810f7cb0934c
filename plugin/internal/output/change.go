package output

import (
	"fmt"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// ChangedObject returns the name of the object of a change in kubectl's notation.
func ChangedObject(change populate.Change) string {
	return Object(change.Kind.GroupKind(), change.Name)
}

// Change returns one line with the action on an object, its template and the reason.
func Change(change populate.Change) string {
	return fmt.Sprintf("%s: %s (template %s): %s", ChangedObject(change), change.Action, change.Template, change.Reason)
}

// ChangesTable returns a table with one row for each change.
func ChangesTable(changes []populate.Change) Table {
	table := Table{Columns: []string{"Object", "Template", "Action", "Reason"}}
	for _, change := range changes {
		table.Rows = append(table.Rows,
			[]string{ChangedObject(change), change.Template, string(change.Action), change.Reason})
	}
	return table
}
