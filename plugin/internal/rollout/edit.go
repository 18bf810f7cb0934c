package rollout

import (
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/kubectl/pkg/scheme"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// edit is a command that changes a template with a merge patch.
type edit struct {
	cli.Session
	print *genericclioptions.PrintFlags
	// patch returns the fields to change in a template, without its metadata.uid and metadata.resourceVersion.
	patch func(template *unstructured.Unstructured) (map[string]any, error)
}

// newEdit completes a command that changes a template. The operation is what the command prints behind the name of the
// template, such as "paused".
func newEdit(
	s cli.Session, cmd *cobra.Command, operation string,
	patch func(template *unstructured.Unstructured) (map[string]any, error),
) *cobra.Command {
	e := &edit{
		Session: s, patch: patch,
		print: cli.NewPrintFlags(operation).WithTypeSetter(scheme.Scheme),
	}
	cmd.DisableFlagsInUseLine = true
	cmd.ValidArgsFunction = s.CompleteTemplate()
	cmd.RunE = oneTemplate(func(cmd *cobra.Command, name string) error { return e.run(cmd.Context(), name) })
	e.print.AddFlags(cmd)
	cli.CompleteValues(cmd, "output", e.print.AllowedFormats()...)
	return cmd
}

func (e *edit) run(ctx context.Context, name string) error {
	c, err := e.Connect()
	if err != nil {
		return err
	}
	printer, err := e.print.ToPrinter()
	if err != nil {
		return err
	}
	template, err := c.Edit(ctx, v1alpha1.NamespaceTemplates, name, metav1.PatchOptions{FieldManager: cli.FieldManager},
		e.patch)
	if err != nil {
		return err
	}
	return output.Print(e.Out, printer, *e.print.OutputFormat, template)
}
