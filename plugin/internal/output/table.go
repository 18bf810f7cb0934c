package output

import (
	"bytes"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// Table is a table in the layout of "kubectl get".
type Table struct {
	Columns []string
	// WideColumns are the last columns, which only a wide table shows.
	WideColumns []string
	Rows        [][]string
}

// Print writes the table.
func (t Table) Print(w io.Writer, wide bool) error {
	return NewTableStream(w, wide, false).Print(t)
}

// TableStream writes tables with the same columns as one table, whose rows arrive one after the other.
type TableStream struct {
	out      io.Writer
	hasColor bool
	printer  printers.ResourcePrinter
	// printed holds the aligned text of the last tables.
	printed *bytes.Buffer
	aligned interface {
		io.Writer
		Flush() error
	}
}

// NewTableStream returns a stream that writes to w.
func NewTableStream(w io.Writer, wide, noHeaders bool) *TableStream {
	printed := &bytes.Buffer{}
	return &TableStream{
		out: w, hasColor: allowsColor(w), printed: printed,
		printer: printers.NewTablePrinter(printers.PrintOptions{Wide: wide, NoHeaders: noHeaders}),
		aligned: printers.GetNewTabWriter(printed),
	}
}

// Print writes the rows of a table. The first rows determine the widths of the columns.
func (s *TableStream) Print(t Table) error {
	if err := s.printer.PrintObj(t.object(), s.aligned); err != nil {
		return err
	}
	if err := s.aligned.Flush(); err != nil {
		return err
	}
	text := s.printed.String()
	s.printed.Reset()
	if s.hasColor && len(t.Rows) > 0 {
		text = colorRows(text, t)
	}
	_, err := io.WriteString(s.out, text)
	return err
}

func (t Table) object() *metav1.Table {
	var table metav1.Table
	for _, name := range t.Columns {
		table.ColumnDefinitions = append(table.ColumnDefinitions,
			metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for _, name := range t.WideColumns {
		table.ColumnDefinitions = append(table.ColumnDefinitions,
			metav1.TableColumnDefinition{Name: name, Type: "string", Priority: 1})
	}
	for _, row := range t.Rows {
		cells := make([]any, len(row))
		for i, cell := range row {
			cells[i] = Escape(cell)
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	return &table
}
