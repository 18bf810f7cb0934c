package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// matrix is the table of namespaces and templates. The templates that select the most namespaces are columns. The last
// column names the others, so that the table stays readable with any number of templates.
type matrix struct {
	Columns   []string
	HasMore   bool
	HasSpaces bool
	Rows      []matrixRow
}

type matrixRow struct {
	Namespace
	Class, Symbol, Label string
	// Order is the position of the state, by which the rows can be sorted.
	Order int
	Cells []matrixCell
	// More names the templates that are not columns.
	More string
}

type matrixCell struct{ Class, Text string }

func newMatrix(namespaces []Namespace) matrix {
	m := matrix{Columns: mostUsed(namespaces)}
	m.HasSpaces = slices.ContainsFunc(namespaces, func(ns Namespace) bool { return ns.PolicySpace != "" })
	positions := map[string]int{}
	for i, name := range m.Columns {
		positions[name] = i
	}
	for _, ns := range namespaces {
		state := shown(ns.State)
		row := matrixRow{
			Namespace: ns, Class: state.class, Symbol: state.symbol, Label: state.label, Order: positionOf(ns.State),
			Cells: make([]matrixCell, len(m.Columns)),
		}
		var more []string
		for _, cell := range ns.Templates {
			if i, isColumn := positions[cell.Template]; isColumn {
				row.Cells[i] = matrixCell{shown(cell.State).class, cell.text()}
			} else {
				more = append(more, cell.Template+" "+cell.text())
			}
		}
		row.More = strings.Join(more, ", ")
		m.HasMore = m.HasMore || row.More != ""
		m.Rows = append(m.Rows, row)
	}
	return m
}

// mostUsed returns the templates that select the most namespaces, in ascending order of names.
func mostUsed(namespaces []Namespace) []string {
	uses := map[string]int{}
	for _, ns := range namespaces {
		for _, cell := range ns.Templates {
			uses[cell.Template]++
		}
	}
	names := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), strings.Compare(a, b))
	})
	names = names[:min(len(names), maxColumns)]
	slices.Sort(names)
	return names
}

// text returns the state of a template in a namespace. A populated one has only a mark and its revision.
func (c Cell) text() string {
	state := shown(c.State)
	text := state.symbol
	if c.State != Populated {
		text += " " + strings.ToLower(state.label)
	}
	if c.Revision > 0 {
		text += fmt.Sprintf(" r%d", c.Revision)
	}
	return text
}
