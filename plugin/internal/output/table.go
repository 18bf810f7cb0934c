package output

import (
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
	return printers.NewTablePrinter(printers.PrintOptions{Wide: wide}).PrintObj(t.object(), w)
}

// TableStream writes tables with the same columns as one table, whose rows arrive one after the other.
type TableStream struct {
	printer printers.ResourcePrinter
	aligned interface {
		io.Writer
		Flush() error
	}
}

// NewTableStream returns a stream that writes to w.
func NewTableStream(w io.Writer, wide, noHeaders bool) *TableStream {
	return &TableStream{
		printer: printers.NewTablePrinter(printers.PrintOptions{Wide: wide, NoHeaders: noHeaders}),
		aligned: printers.GetNewTabWriter(w),
	}
}

// Print writes the rows of a table. The first rows determine the widths of the columns.
func (s *TableStream) Print(t Table) error {
	if err := s.printer.PrintObj(t.object(), s.aligned); err != nil {
		return err
	}
	return s.aligned.Flush()
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
