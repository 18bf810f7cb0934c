package sync

import (
	"slices"
	"time"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// printer prints views: a table or another format to standard output, and notes to standard error.
type printer struct {
	cli.Session
	format      string
	hasContexts bool

	// stream is the table that the rows of a watch continue, or nil before the first row.
	stream *output.TableStream
	// noted holds the notes that were printed last, by the title of the repository.
	noted map[string][]string
}

// print prints views. In a table, notes about a repository are printed when they differ from those printed before.
func (p *printer) print(views []view, now time.Time) error {
	isFirst := p.stream == nil
	if isFirst {
		p.stream = output.NewTableStream(p.Out, p.format == cli.FormatWide)
		p.noted = map[string][]string{}
	}
	list := output.NewList("RepositoryStatusList", views)
	switch p.format {
	case cli.FormatJSON:
		return output.JSON(p.Out, list)
	case cli.FormatYAML:
		if !isFirst {
			output.Line(p.Out, "---")
		}
		return output.YAMLStream(p.Out, []any{list})
	}
	if len(views) == 0 {
		p.Note("No resources found")
		return nil
	}
	if err := p.stream.Print(p.table(views, now)); err != nil {
		return err
	}
	for _, v := range views {
		notes := v.notes()
		if slices.Equal(notes, p.noted[v.title()]) {
			continue
		}
		p.noted[v.title()] = notes
		for _, line := range notes {
			p.Note("%s", line)
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
