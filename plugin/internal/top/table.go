package top

import (
	"fmt"
	"strconv"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// maxShown is how many child policyspaces and how many namespaces a table shows for each limit, unless it is wide.
const maxShown = 5

// table returns the table of limits. The rows of those that use a limit are below it.
func table(limits []limit, wide bool) output.Table {
	t := output.Table{Columns: []string{"Name", "Resource", "Used", "Limit", "Used%"}, WideColumns: []string{"Message"}}
	for _, l := range limits {
		used, percent := usageCells(l.Used, l.Percent)
		t.Rows = append(t.Rows, []string{"policyspace/" + l.Name, l.Resource, used, l.Limit, percent, l.Message})
		for _, users := range []struct {
			kind   string
			shares []share
		}{{"policyspace", l.PolicySpaces}, {"namespace", l.Namespaces}} {
			t.Rows = append(t.Rows, rows(users.kind, l.Resource, users.shares, wide)...)
		}
	}
	return t
}

func rows(kind, resource string, shares []share, wide bool) [][]string {
	var all [][]string
	for i, s := range shares {
		if i == maxShown && !wide {
			return append(all, []string{fmt.Sprintf("  %d more with -o wide", len(shares)-i), "", "", "", "", ""})
		}
		used, percent := usageCells(s.Used, s.Percent)
		all = append(all, []string{"  " + kind + "/" + s.Name, resource, used, "", percent, ""})
	}
	return all
}

// usageCells returns the cells with a usage, which is unknown if the user may not read it, or nothing has counted it.
func usageCells(used string, percent *int) (usedCell, percentCell string) {
	if percent == nil {
		return "<unknown>", "<unknown>"
	}
	return used, percentage(*percent)
}

func percentage(percent int) string { return strconv.Itoa(percent) + "%" }
