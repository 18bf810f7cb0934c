package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/scheme"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// Written prints the objects that a command writes, as the flags --output and --dry-run say.
type Written struct {
	print  *genericclioptions.PrintFlags
	dryRun cmdutil.DryRunStrategy
}

// AddFlags adds the flags and their checks to a command.
func (w *Written) AddFlags(cmd *cobra.Command) {
	w.AddOutputFlag(cmd)
	cmdutil.AddDryRunFlag(cmd)
	CompleteValues(cmd, "dry-run", "none", "client", "server")
	beforeRun(cmd, func([]string) (err error) {
		w.dryRun, err = cmdutil.GetDryRunStrategy(cmd)
		return err
	})
}

// AddOutputFlag adds only --output and its check to a command.
func (w *Written) AddOutputFlag(cmd *cobra.Command) {
	w.print = NewPrintFlags("").WithTypeSetter(scheme.Scheme)
	w.print.AddFlags(cmd)
	CompleteValues(cmd, "output", w.print.AllowedFormats()...)
	beforeRun(cmd, func([]string) error {
		_, err := w.print.ToPrinter()
		return err
	})
}

// IsDryRun reports whether the command stores nothing.
func (w *Written) IsDryRun() bool { return w.dryRun != cmdutil.DryRunNone }

// IsLocal reports whether the command sends no request that writes, not even a dry run.
func (w *Written) IsLocal() bool { return w.dryRun == cmdutil.DryRunClient }

// HasFormat reports whether the command line has the flag --output.
func (w *Written) HasFormat() bool { return *w.print.OutputFormat != "" }

// DryRun returns the field dryRun of the options of a request.
func (w *Written) DryRun() []string {
	if w.dryRun == cmdutil.DryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// Print prints an object, without --output as in "namespace/team-a created (dry run)".
func (w *Written) Print(out io.Writer, object runtime.Object, operation string) error {
	w.print.NamePrintFlags.Operation = operation
	cmdutil.PrintFlagsWithDryRunStrategy(w.print, w.dryRun)
	printer, err := w.print.ToPrinter()
	if err != nil {
		return err
	}
	return output.Print(out, printer, *w.print.OutputFormat, object)
}

// PrintWritten prints the objects that a command wrote, behind the context if there are several.
func PrintWritten(s Session, w *Written, operation string, written []Reply[*unstructured.Unstructured]) error {
	for _, r := range written {
		var text strings.Builder
		if err := w.Print(&text, r.Value, operation); err != nil {
			return err
		}
		if r.Context != "" {
			output.Line(s.Out, "%s%s", r.Prefix(), strings.TrimSpace(text.String()))
		} else if _, err := io.WriteString(s.Out, text.String()); err != nil {
			return err
		}
	}
	return nil
}

// NewPrintFlags returns kubectl's flags for the output of objects. They do not have kubectl's flag --template: in all
// commands, it names a NamespaceTemplate. A template of Go is a part of --output, as in -o go-template='{{.kind}}'.
func NewPrintFlags(operation string) *genericclioptions.PrintFlags {
	flags := genericclioptions.NewPrintFlags(operation)
	withoutTemplate(flags.TemplatePrinterFlags)
	return flags
}

func withoutTemplate(flags *genericclioptions.KubeTemplatePrintFlags) {
	flags.TemplateArgument = nil
	flags.GoTemplatePrintFlags.TemplateArgument = nil
	flags.JSONPathPrintFlags.TemplateArgument = nil
}
