package report

import (
	"cmp"
	"encoding/csv"
	"io"
	"slices"
	"strings"
	"time"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// columns are the columns of the CSV format. New columns are added at the end.
var columns = []string{
	"namespace", "state", "severity", "template", "object", "reason", "message", "remedy", "since", "policySpace",
	"templates", "optedOut", "exemptions",
}

// writeCSV writes a row for each finding, and one for each namespace without findings. With several clusters, a last
// column has the cluster.
func writeCSV(w io.Writer, reports []Report, hasContexts bool) error {
	table, header := csv.NewWriter(w), columns
	if hasContexts {
		header = append(slices.Clone(header), "cluster")
	}
	if err := table.Write(header); err != nil {
		return err
	}
	for _, r := range reports {
		last := []string{}
		if hasContexts {
			last = append(last, plainCell(r.Cluster))
		}
		if err := r.writeRows(table, last); err != nil {
			return err
		}
	}
	table.Flush()
	return table.Error()
}

func (r *Report) writeRows(table *csv.Writer, last []string) error {
	findings := map[string][]Finding{}
	for _, f := range r.Findings {
		findings[f.Namespace] = append(findings[f.Namespace], f)
	}
	optOuts := map[string]string{}
	for _, out := range r.OptOuts {
		optOuts[out.Namespace] = out.String()
	}
	exempt := byNamespace(r.Exemptions)
	rows := append([]Namespace{{}}, r.Namespaces...) // the findings without a namespace come first
	for _, ns := range rows {
		found := findings[ns.Name]
		if len(found) == 0 && ns.Name != "" {
			found = []Finding{{Reason: ns.Reason, Message: ns.Message, Since: ns.Since}}
		}
		for _, f := range found {
			row := csvRow(ns, f, optOuts[ns.Name], exempt[ns.Name])
			if err := table.Write(append(row, last...)); err != nil {
				return err
			}
		}
	}
	return nil
}

func csvRow(ns Namespace, f Finding, optedOut string, exempt []string) []string {
	names := make([]string, 0, len(ns.Templates))
	for _, cell := range ns.Templates {
		names = append(names, cell.Template)
	}
	since := ""
	if f.Since != nil {
		since = f.Since.UTC().Format(time.RFC3339)
	}
	row := []string{
		ns.Name, string(ns.State), string(f.Severity), f.Template, f.Object, f.Reason, f.Message, f.Remedy, since,
		ns.PolicySpace, strings.Join(names, " "), optedOut, strings.Join(exempt, "; "),
	}
	for i := range row {
		row[i] = plainCell(row[i])
	}
	return row
}

// plainCell returns a cell that a spreadsheet does not take for a formula: an apostrophe makes it a text. Messages from
// the cluster contain what users wrote.
func plainCell(text string) string {
	text = output.Escape(text)
	if strings.HasPrefix(text, "=") || strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") ||
		strings.HasPrefix(text, "@") {
		return "'" + text
	}
	return text
}

// String returns the templates of an opt-out, or "all".
func (o OptOut) String() string {
	return cmp.Or(strings.Join(o.Templates, " "), "all")
}
