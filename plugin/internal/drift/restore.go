package drift

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type restore struct {
	cli.Session
	print  *genericclioptions.PrintFlags
	dryRun cmdutil.DryRunStrategy
}

// NewRestore returns the command `kubectl nstpl restore`.
func NewRestore(s cli.Session) *cobra.Command {
	o := &restore{Session: s, print: cli.NewPrintFlags("")}
	cmd := &cobra.Command{
		Use:   "restore TYPE/NAME... [--dry-run=none|client|server]",
		Short: "Apply declared objects again that were changed or deleted",
		Long: templates.LongDesc(`
			Apply declared objects again that were changed or deleted in a namespace. With driftPolicy Report, the
			operator keeps such changes until the template changes the object. Fields that no template declares stay
			as they are.

			The command applies the object with your permissions, as the operator would. An exempt object is refused.`),
		Example: templates.Examples(`
			# Show what was changed in the current namespace
			kubectl nstpl diff

			# Take the changes of two objects back
			kubectl nstpl restore resourcequota/compute limitrange/defaults -n team-a`),
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError(cmd, errors.New("name an object as TYPE/NAME"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.dryRun, err = cmdutil.GetDryRunStrategy(cmd); err != nil {
				return cli.UsageError(cmd, err)
			}
			return o.run(cmd.Context(), args)
		},
	}
	o.print.AddFlags(cmd)
	cmdutil.AddDryRunFlag(cmd)
	cli.CompleteValues(cmd, "output", o.print.AllowedFormats()...)
	cli.CompleteValues(cmd, "dry-run", "none", "client", "server")
	return cmd
}

// run restores the objects in the order of the arguments. It looks up all of them before it writes the first.
func (o *restore) run(ctx context.Context, args []string) error {
	p, err := plan(ctx, o.Session)
	if err != nil {
		return err
	}
	var changes []populate.Change
	for _, argument := range args {
		change, err := p.find(argument)
		if err != nil {
			return err
		}
		if change.Action == populate.LeaveAlone && !change.Drifted {
			return fmt.Errorf("%s is left alone by the operator: %s", p.where(change), change.Reason)
		}
		changes = append(changes, change)
	}
	for _, change := range changes {
		if err := o.restore(ctx, p, change); err != nil {
			return err
		}
	}
	return nil
}

func (o *restore) restore(ctx context.Context, p *planned, change populate.Change) error {
	objects, err := p.cluster.Objects(change.Kind, p.namespace.Name)
	if err != nil {
		return err
	}
	live, err := objects.Get(ctx, change.Name, metav1.GetOptions{})
	var existing metav1.Object // not a nil pointer in an interface
	switch {
	case err == nil:
		existing = live
	case !apierrors.IsNotFound(err):
		return err
	}
	switch {
	case change.Action == populate.Unchanged && existing != nil:
		return o.printResult(live, "unchanged")
	case o.dryRun == cmdutil.DryRunClient:
		return o.printResult(change.Declared.Unstructured, "restored")
	}
	body, err := populate.Body(change.Declared, existing)
	if err != nil {
		return err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager, Force: &force}
	if o.dryRun == cmdutil.DryRunServer {
		options.DryRun = []string{metav1.DryRunAll}
	}
	stored, err := objects.Patch(ctx, change.Name, types.ApplyPatchType, body, options)
	if apierrors.IsInvalid(err) && existing != nil {
		return fmt.Errorf("%s cannot be updated in place: delete it and run the command again: %w", p.where(change), err)
	}
	if err != nil {
		return err
	}
	return o.printResult(stored, "restored")
}

func (o *restore) printResult(object *unstructured.Unstructured, operation string) error {
	o.print.NamePrintFlags.Operation = operation
	cmdutil.PrintFlagsWithDryRunStrategy(o.print, o.dryRun)
	printer, err := o.print.ToPrinter()
	if err != nil {
		return err
	}
	return output.Print(o.Out, printer, *o.print.OutputFormat, object)
}
