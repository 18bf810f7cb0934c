package output

import (
	"fmt"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// ChangedObject names the object of a change as kubectl does.
func ChangedObject(change populate.Change) string {
	return Object(change.Kind.GroupKind(), change.Name)
}

// Change returns a line that says what would become of an object, and why.
func Change(change populate.Change) string {
	return fmt.Sprintf("%s: %s (template %s): %s", ChangedObject(change), change.Action, change.Template, change.Reason)
}

// ChangesTable returns a table of changes, one in each row.
func ChangesTable(changes []populate.Change) Table {
	table := Table{Columns: []string{"Object", "Template", "Action", "Reason"}}
	for _, change := range changes {
		table.Rows = append(table.Rows,
			[]string{ChangedObject(change), change.Template, string(change.Action), change.Reason})
	}
	return table
}
