package rollout

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/util/retry"
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
		print: genericclioptions.NewPrintFlags(operation).WithTypeSetter(scheme.Scheme),
	}
	cmd.DisableFlagsInUseLine = true
	cmd.ValidArgsFunction = completeTemplate(s)
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
	var template *unstructured.Unstructured
	// The operator writes the status during a rollout, so the template may change between the read and the patch.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if template, err = c.Template(ctx, name); err != nil {
			return err
		}
		patch, err := e.encode(template)
		if err != nil {
			return err
		}
		template, err = c.Dynamic.Resource(v1alpha1.NamespaceTemplates).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: cli.FieldManager})
		return err
	})
	if err != nil {
		return err
	}
	return output.Print(e.Out, printer, *e.print.OutputFormat, template)
}

// encode returns the patch for a template as it was read. The API server applies it to no other state of the template.
func (e *edit) encode(template *unstructured.Unstructured) ([]byte, error) {
	patch, err := e.patch(template)
	if err != nil {
		return nil, err
	}
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = template.GetUID(), template.GetResourceVersion()
	return json.Marshal(patch)
}
