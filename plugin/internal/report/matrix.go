package report

import (
	"cmp"
	"fmt"
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
		row := matrixRow{
			Namespace: ns, Label: label(ns.State), Order: slices.Index(states, ns.State),
			Cells: make([]matrixCell, len(m.Columns)),
		}
		row.Class, row.Symbol = styleOf(ns.State)
		var more []string
		for _, cell := range ns.Templates {
			if i, isColumn := positions[cell.Template]; isColumn {
				class, _ := styleOf(cell.State)
				row.Cells[i] = matrixCell{class, cell.text()}
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
	names := make([]string, 0, len(uses))
	for name := range uses {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), strings.Compare(a, b))
	})
	names = names[:min(len(names), maxColumns)]
	slices.Sort(names)
	return names
}

// text returns the state of a template in a namespace. A populated one has only a mark and its revision.
func (c Cell) text() string {
	_, symbol := styleOf(c.State)
	text := symbol
	if c.State != Populated {
		text += " " + strings.ToLower(label(c.State))
	}
	if c.Revision > 0 {
		text += fmt.Sprintf(" r%d", c.Revision)
	}
	return text
}

// styleOf returns the style of a state, which can be empty, and a symbol.
func styleOf(state State) (class, symbol string) {
	switch state {
	case Failed:
		return "bad", "✗"
	case Drifted:
		return "drift", "≠"
	case Populated:
		return "good", "✓"
	case NotReached:
		return "", "→"
	case Retrying, Held, NotReported:
		return "drift", "…"
	case OptedOut:
		return "", "–"
	case NoTemplate, Excluded:
		return "muted", "·"
	}
	return "", ""
}

// label returns a state in words.
func label(state State) string {
	switch state {
	case Held:
		return "Waiting for initializers"
	case NotReported:
		return "Not reported"
	case OptedOut:
		return "Opted out"
	case NotReached:
		return "Not reached"
	case NoTemplate:
		return "No template"
	case Failed, Drifted, Retrying, Populated, Excluded:
	}
	return string(state)
}
