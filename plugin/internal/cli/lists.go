package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/cmd/get"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// ListFlags are kubectl's flags for the output of a list: --output, --no-headers and --sort-by.
type ListFlags struct {
	Format string

	isWide, hasNames bool
	more, optional   []string
	noHeaders        bool
	sortBy           string
	isWatch          *bool
	// stream is the table that the rows of a watch continue, or nil before the first row.
	stream *output.TableStream
	// custom prints the formats of kubectl that are not built in here.
	custom printers.ResourcePrinter
}

// ListOptions are what the flags of a command depend on.
type ListOptions struct {
	// Wide reports whether the table has columns for -o wide, and Names whether the items are objects, for -o name.
	Wide, Names bool
	// Formats are further formats, which the command itself prints.
	Formats []string
	// Optional are the fields that all items may lack, such as percent. Sorting by them then keeps the order.
	Optional []string
	// Watch is the value of the flag --watch, or nil if the command does not have it.
	Watch *bool
}

// AddTo adds the flags and their check to a command.
func (f *ListFlags) AddTo(cmd *cobra.Command, options ListOptions) {
	f.isWide, f.hasNames, f.isWatch = options.Wide, options.Names, options.Watch
	f.more, f.optional = options.Formats, options.Optional
	allowed := f.allowed()
	flags := cmd.Flags()
	flags.StringVarP(&f.Format, "output", "o", "", fmt.Sprintf("Output format. One of: (%s).", strings.Join(allowed, ", ")))
	flags.BoolVar(&f.noHeaders, "no-headers", false, "Print tables and custom columns without headers.")
	flags.StringVar(&f.sortBy, "sort-by", "", "Sort the items by a field, as a JSONPath expression such as '.name'.")
	CompleteValues(cmd, "output", allowed...)
	beforeRun(cmd, f.check)
}

func (f *ListFlags) allowed() []string {
	allowed := []string{FormatJSON, FormatYAML}
	if f.isWide {
		allowed = append([]string{FormatWide}, allowed...)
	}
	allowed = slices.Concat(f.more, allowed)
	if f.hasNames {
		allowed = append(allowed, FormatName)
	}
	return append(allowed, "jsonpath=...", "jsonpath-file=...", "go-template=...", "go-template-file=...",
		"custom-columns=...", "custom-columns-file=...")
}

func (f *ListFlags) check([]string) error {
	if _, err := get.RelaxedJSONPathExpression(f.sortBy); err != nil {
		return fmt.Errorf("invalid --sort-by %q: %w", f.sortBy, err)
	}
	if f.sortBy != "" && f.isWatch != nil && *f.isWatch {
		return errors.New("--sort-by cannot be combined with --watch")
	}
	if f.Format == "" || slices.Contains(f.allowed(), f.Format) && !strings.HasSuffix(f.Format, "=...") {
		return nil
	}
	var err error
	if f.custom, err = f.customPrinter(); genericclioptions.IsNoCompatiblePrinterError(err) {
		return fmt.Errorf("invalid --output %q: must be one of %s", f.Format, strings.Join(f.allowed(), ", "))
	} else if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}

func (f *ListFlags) customPrinter() (printers.ResourcePrinter, error) {
	columns := get.NewCustomColumnsPrintFlags()
	columns.NoHeaders = f.noHeaders
	if printer, err := columns.ToPrinter(f.Format); !genericclioptions.IsNoCompatiblePrinterError(err) {
		return printer, err
	}
	templates := genericclioptions.NewKubeTemplatePrintFlags()
	withoutTemplate(templates)
	return templates.ToPrinter(f.Format)
}

// Printed is a list to print.
type Printed[T any] struct {
	// Kind is the kind of the list in JSON and YAML, such as NamespaceStatusList.
	Kind  string
	Items []T
	// Name returns the object of an item for -o name, such as namespace/team-a. It is nil without -o name.
	Name func(T) string
	// Table returns the table of items, and Empty is the note in place of an empty table.
	Table func([]T) output.Table
	Empty string
}

// PrintList prints a list in the format of the flags. Further calls continue the output of the first.
func PrintList[T any](s Session, f *ListFlags, list Printed[T]) error {
	items, err := Sorted(f, list.Items)
	if err != nil {
		return err
	}
	isFirst := f.stream == nil
	if isFirst {
		f.stream = output.NewTableStream(s.Out, f.Format == FormatWide, f.noHeaders)
	}
	switch {
	case f.Format == FormatYAML && !isFirst:
		output.Line(s.Out, "---")
	case f.Format == FormatName:
		printed := map[string]bool{} // several items may have one name, such as the limits of a policyspace
		for _, item := range items {
			if name := list.Name(item); !printed[name] {
				printed[name] = true
				output.Line(s.Out, "%s", name)
			}
		}
		return nil
	}
	if printed, err := f.PrintReport(s.Out, output.NewList(list.Kind, items)); printed {
		return err
	}
	if len(items) == 0 {
		s.Note("%s", list.Empty)
		return nil
	}
	table := list.Table(items)
	for _, row := range table.Rows {
		for i := range row {
			row[i] = s.Commands(row[i]) // messages of conditions propose commands
		}
	}
	return f.stream.Print(table)
}

// Sorted returns items in the order of the flag --sort-by, or in their own order without the flag or if they all lack
// an optional field.
func Sorted[T any](f *ListFlags, items []T) ([]T, error) {
	sorted := slices.Clone(items)
	if f.sortBy == "" {
		return sorted, nil
	}
	err := sortItems(sorted, f.sortBy)
	if slices.Contains(f.optional, strings.Trim(f.sortBy, "{.}")) {
		err = nil // no item has the field
	}
	return sorted, err
}

// PrintTable prints a table with the flags --output=wide and --no-headers.
func (f *ListFlags) PrintTable(out io.Writer, table output.Table) error {
	return output.NewTableStream(out, f.Format == FormatWide, f.noHeaders).Print(table)
}

// PrintReport prints a list, which may have fields besides its items, or an object as JSON, as YAML or in a format of
// kubectl. For other formats, printed is false.
func (f *ListFlags) PrintReport(out io.Writer, report any) (printed bool, err error) {
	switch {
	case f.Format == FormatJSON:
		return true, output.JSON(out, report)
	case f.Format == FormatYAML:
		return true, output.YAMLStream(out, []any{report})
	case f.custom == nil:
		return false, nil
	}
	objects, err := unstructuredItems([]any{report})
	if err != nil {
		return true, err
	}
	return true, output.Print(out, f.custom, f.Format, withItems(objects[0]))
}

// withItems returns an object as a list if it has items, so that kubectl's custom columns have a row for each.
func withItems(object *unstructured.Unstructured) runtime.Object {
	if !object.IsList() {
		return object
	}
	list, err := object.ToList()
	if err != nil {
		return object // its items are not objects
	}
	return list
}

// PrintObject prints one object in the format of the flags, by default as YAML.
func (f *ListFlags) PrintObject(out io.Writer, object *unstructured.Unstructured) error {
	if printed, err := f.PrintReport(out, object.Object); printed {
		return err
	}
	return output.YAMLStream(out, []any{object.Object})
}

// unstructuredItems returns the fields that items have in JSON.
func unstructuredItems[T any](items []T) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, item := range items {
		data, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(data, &object.Object); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// sortItems sorts items by a field, as kubectl get does.
func sortItems[T any](items []T, field string) error {
	fields, err := unstructuredItems(items)
	if err != nil || len(items) == 0 {
		return err
	}
	objects, positions := make([]runtime.Object, len(items)), map[runtime.Object]int{}
	for i, object := range fields {
		objects[i], positions[object] = object, i
	}
	if _, err := get.SortObjects(nil, objects, field); err != nil {
		return fmt.Errorf("--sort-by: %w", err)
	}
	before := slices.Clone(items)
	for i, object := range objects {
		items[i] = before[positions[object]]
	}
	return nil
}
