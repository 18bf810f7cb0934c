package drift

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/survey"
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

			The command applies the object with your permissions, and with the checks of the operator. So you need the
			verb patch on the object, and also on the NamespaceTemplate that declares it. The command refuses an exempt
			object, a Role that would give its rules to a RoleBinding which no template declares, and a RoleBinding
			whose Role is not as declared. Name a RoleBinding and its Role in one command. An object that cannot be
			changed in place is deleted and recreated where the operator would do so.`),
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

// run restores the objects, and prints them in the order of the arguments. It looks up all of them, and checks whether
// they may be restored, before it writes the first.
func (o *restore) run(ctx context.Context, args []string) error {
	p, err := plan(ctx, o.Session)
	if err != nil {
		return err
	}
	changes, err := o.find(ctx, p, args)
	if err != nil {
		return err
	}
	result, err := o.restore(ctx, p, changes)
	if err != nil {
		return err
	}
	var errs []error
	for _, change := range changes {
		errs = append(errs, o.print(ctx, p, change, result))
	}
	return errors.Join(errs...)
}

// find returns the changes of the objects that the arguments name. An object that the caller may not restore is an
// error.
func (o *restore) find(ctx context.Context, p *planned, args []string) ([]populate.Change, error) {
	var changes []populate.Change
	permitted := map[string]bool{}
	for _, argument := range args {
		change, err := p.find(ctx, argument)
		if err != nil {
			return nil, err
		}
		if change.Action == populate.LeaveAlone && !change.Drifted {
			return nil, p.leftAlone(change)
		}
		changes = append(changes, change)
		writes := change.Action != populate.Unchanged && !o.written.IsLocal()
		if writes && !permitted[change.Template] {
			if err := checkPermission(ctx, p, change.Template); err != nil {
				return nil, err
			}
			permitted[change.Template] = true
		}
	}
	return changes, nil
}

// restore applies the objects of changes as the operator would, unless the command is a dry run.
func (o *restore) restore(ctx context.Context, p *planned, changes []populate.Change) (populate.Result, error) {
	var ids []populate.ObjectID
	for _, change := range changes {
		if change.Action != populate.Unchanged {
			ids = append(ids, change.ID())
		}
	}
	applier := p.cluster.Applier()
	if refused := applier.MayRestore(ctx, p.plan, ids); refused != nil {
		return populate.Result{}, p.cannotRestore(*refused)
	}
	if o.written.IsDryRun() {
		return populate.Result{}, nil
	}
	return applier.Restore(ctx, p.plan, ids), nil
}

// print prints an object as it is stored after the result or, for a dry run, as it would be stored.
func (o *restore) print(ctx context.Context, p *planned, change populate.Change, result populate.Result) error {
	isUnchanged := change.Action == populate.Unchanged
	switch {
	case isUnchanged:
	case o.written.IsLocal():
		return o.written.Print(o.Out, change.Declared.Unstructured, "restored")
	case o.written.IsDryRun():
		sides, err := survey.DryRun(ctx, p.cluster, p.namespace.Name, change)
		if err = cmp.Or(err, sides.Refusal); err != nil {
			return fmt.Errorf("cannot restore %s: %w", p.where(change), err)
		}
		return o.written.Print(o.Out, sides.Stored, "restored")
	}
	i := slices.IndexFunc(result.Outcomes, func(o populate.Outcome) bool { return o.ID() == change.ID() })
	switch {
	case isUnchanged:
	case i < 0:
		return fmt.Errorf("%s was not restored, because another object could not be written", p.where(change))
	case result.Outcomes[i].Failure != nil:
		return p.cannotRestore(result.Outcomes[i])
	}
	objects, err := p.cluster.Objects(ctx, change.Kind, p.namespace.Name)
	if err != nil {
		return err
	}
	stored, err := objects.Get(ctx, change.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case isUnchanged:
		return o.written.Print(o.Out, stored, "unchanged")
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
