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
		t.Rows = append(t.Rows, []string{
			"policyspace/" + l.Name, l.Resource, l.Used, l.Limit, percentage(l.Percent), l.Message,
		})
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
		used, percent := unknown, unknown
		if s.Percent != nil {
			used, percent = s.Used, percentage(*s.Percent)
		}
		all = append(all, []string{"  " + kind + "/" + s.Name, resource, used, "", percent, ""})
	}
	return all
}

// unknown is the cell for what the user may not read.
const unknown = "<unknown>"

func percentage(percent int) string { return strconv.Itoa(percent) + "%" }
