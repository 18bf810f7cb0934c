package command

import (
	"fmt"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// objectOf names the object of a change as kubectl does.
func objectOf(change populate.Change) string {
	return output.Object(change.Kind.GroupKind(), change.Name)
}

func sayChange(change populate.Change) string {
	return fmt.Sprintf("%s: %s (template %s): %s", objectOf(change), change.Action, change.Template, change.Reason)
}

func changesTable(changes []populate.Change) output.Table {
	table := output.Table{Columns: []string{"Object", "Template", "Action", "Reason"}}
	for _, change := range changes {
		table.Rows = append(table.Rows, []string{objectOf(change), change.Template, string(change.Action), change.Reason})
	}
	return table
}
