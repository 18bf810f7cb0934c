package sync

import (
	"slices"
	"time"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// printer prints views: a table or another format to standard output, and notes to standard error.
type printer struct {
	cli.Session
	output      cli.ListFlags
	hasContexts bool

	// noted holds the notes that were printed last, by the title of the repository.
	noted map[string][]string
}

// print prints views. In a table, notes about a repository are printed when they differ from those printed before.
func (p *printer) print(views []view, now time.Time) error {
	err := cli.PrintList(p.Session, &p.output, cli.Printed[view]{
		Kind: "RepositoryStatusList", Items: views, Empty: "No resources found",
		Name:  func(v view) string { return "policyrepository." + v1alpha1.GroupVersion.Group + "/" + v.Name },
		Table: func(views []view) output.Table { return p.table(views, now) },
	})
	if err != nil || p.output.Format != "" && p.output.Format != cli.FormatWide {
		return err
	}
	if p.noted == nil {
		p.noted = map[string][]string{}
	}
	for _, v := range views {
		notes := v.notes()
		if slices.Equal(notes, p.noted[v.title()]) {
			continue
		}
		p.noted[v.title()] = notes
		for _, line := range notes {
			output.Note(p.ErrOut, "%s", p.ForContext(v.Context).Commands(line))
		}
	}
	return nil
}

func (p *printer) table(views []view, now time.Time) output.Table {
	table := output.Table{Columns: columns, WideColumns: wideColumns}
	if p.hasContexts {
		table.Columns = slices.Concat([]string{"Context"}, columns)
	}
	for _, v := range views {
		v.Message = p.ForContext(v.Context).Commands(v.Message)
		row := v.row(now)
		if p.hasContexts {
			row = slices.Concat([]string{v.Context}, row)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

// readiness returns an Exit with code 1 if one of the views is not ready. The output explains it.
func readiness(views []view) error {
	if slices.ContainsFunc(views, func(v view) bool { return !v.isReady() }) {
		return &cli.Exit{Code: 1}
	}
	return nil
}
