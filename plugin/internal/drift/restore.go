package drift

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

type restore struct {
	cli.Session
	written cli.Written
}

// NewRestore returns the command `kubectl nstpl restore`.
func NewRestore(s cli.Session) *cobra.Command {
	o := &restore{Session: s}
	cmd := &cobra.Command{
		Use:   "restore TYPE/NAME... [--dry-run=none|client|server]",
		Short: "Apply declared objects again that were changed or deleted",
		Long: templates.LongDesc(`
			Apply declared objects again that were changed or deleted in a namespace. With driftPolicy Report, the
			operator keeps such changes until the template changes the object. Fields that no template declares stay
			as they are.

			The command applies the object with your permissions, as the operator would. So you need the verb patch on
			the object, and also on the NamespaceTemplate that declares it. An exempt object is refused.`),
		Example: templates.Examples(`
			# Show what was changed in the current namespace
			kubectl nstpl diff

			# Take the changes of two objects back
			kubectl nstpl restore resourcequota/compute limitrange/defaults -n team-a`),
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError(cmd, errors.New("name an object as TYPE/NAME"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args)
		},
	}
	o.written.AddFlags(cmd)
	return cmd
}

// run restores the objects in the order of the arguments. It looks up all of them before it writes the first.
func (o *restore) run(ctx context.Context, args []string) error {
	p, err := plan(ctx, o.Session)
	if err != nil {
		return err
	}
	var changes []populate.Change
	permitted := map[string]bool{}
	for _, argument := range args {
		change, err := p.find(ctx, argument)
		if err != nil {
			return err
		}
		if change.Action == populate.LeaveAlone && !change.Drifted {
			return p.leftAlone(change)
		}
		changes = append(changes, change)
		writes := change.Action != populate.Unchanged && !o.written.IsLocal()
		if writes && !permitted[change.Template] {
			if err := checkPermission(ctx, p, change.Template); err != nil {
				return err
			}
			permitted[change.Template] = true
		}
	}
	for _, change := range changes {
		if err := o.restore(ctx, p, change); err != nil {
			return err
		}
	}
	return nil
}

func (o *restore) restore(ctx context.Context, p *planned, change populate.Change) error {
	objects, err := p.cluster.Objects(ctx, change.Kind, p.namespace.Name)
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
		return o.written.Print(o.Out, live, "unchanged")
	case o.written.IsLocal():
		return o.written.Print(o.Out, change.Declared.Unstructured, "restored")
	}
	body, err := populate.Body(change.Declared, existing)
	if err != nil {
		return err
	}
	force := true
	options := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager, Force: &force, DryRun: o.written.DryRun()}
	stored, err := objects.Patch(ctx, change.Name, types.ApplyPatchType, body, options)
	if apierrors.IsInvalid(err) && existing != nil {
		return fmt.Errorf("%s cannot be updated in place: delete it and run the command again: %w", p.where(change), err)
	}
	if err != nil {
		return err
	}
	return o.written.Print(o.Out, stored, "restored")
}

// checkPermission returns an error if the caller may not patch a template. Admission then denies writes as the operator
// to objects of the template, but allows a dry run of them.
func checkPermission(ctx context.Context, p *planned, template string) error {
	allowed, err := p.cluster.May(ctx, "patch", v1alpha1.NamespaceTemplates, template, "")
	if err == nil && !allowed {
		err = fmt.Errorf("restore writes as the operator does: you need the verb patch on namespacetemplates/%s in the API "+
			"group %s", template, v1alpha1.GroupVersion.Group)
	}
	return err
}
