package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// notRolledOut is what a missing operator means for a rollout that is not complete.
const notRolledOut = "the rollout does not go on"

type status struct {
	cli.Session
	watch    bool
	timeout  time.Duration
	revision int64

	name string
	// printed is the last line that was printed.
	printed string
}

func newStatus(s cli.Session) *cobra.Command {
	o := &status{Session: s}
	cmd := &cobra.Command{
		Use:   "status TEMPLATE [-w=false] [--timeout=DURATION] [--revision=N]",
		Short: "Show the status of the rollout",
		Long: templates.LongDesc(`
			Show how many namespaces the newest revision of a template has reached, until its rollout is complete. Use
			--watch=false to print the status once.

			If a new rollout begins meanwhile, the command goes on with that one, unless --revision names the revision
			to wait for.

			Exit status:
			 0
			The rollout is complete, although namespaces may have failed that do not stop it, or, with
			--watch=false, it is under way.
			 1
			The rollout stopped because namespaces failed, the template is disabled, the command failed, or, with
			--watch=false, the rollout is not complete and no operator is running.`),
		Example: templates.Examples(`
			# Wait until the change of a template has reached all namespaces
			kubectl nstpl rollout status budget

			# Wait for at most five minutes, as in a pipeline
			kubectl nstpl rollout status budget --timeout=5m`),
		Args:              cli.OneArg("TEMPLATE"),
		ValidArgsFunction: s.CompleteTemplate(),
		RunE: oneTemplate(func(cmd *cobra.Command, name string) error {
			if o.revision < 0 {
				return cli.UsageError(cmd, fmt.Errorf("revision must be a positive integer: %d", o.revision))
			}
			o.name = name
			return o.run(cmd.Context())
		}),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.watch, "watch", "w", true, "Watch the status of the rollout until it is complete.")
	flags.DurationVar(&o.timeout, "timeout", 0,
		"The length of time to wait, such as 1s, 2m or 3h. Zero means to wait without limit.")
	flags.Int64Var(&o.revision, "revision", 0,
		"The revision to wait for. The command fails if another revision is the newest. Zero means the newest.")
	return cmd
}

func (o *status) run(ctx context.Context) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	object, err := c.Template(ctx, o.name)
	if err != nil {
		return err
	}
	template, err := cluster.Decode[v1alpha1.NamespaceTemplate](object)
	if err != nil {
		return err
	}
	done, err := o.show(template)
	switch {
	case err != nil:
		return err
	case done:
		o.NoteMissingOperator(ctx, c, "later changes of the template and of namespaces are not rolled out")
		return nil
	case !o.watch:
		if missing := cli.MissingOperator(ctx, c, notRolledOut); missing != "" {
			return errors.New(missing)
		}
		return nil
	}
	waiting, cancel := cli.WithTimeout(ctx, o.timeout)
	defer cancel()
	err = cli.Await(waiting, c, v1alpha1.NamespaceTemplates, o.name,
		func() { o.NoteMissingOperator(ctx, c, notRolledOut) }, o.show)
	switch {
	case err == nil:
		return nil
	case cli.TimedOut(waiting):
		return fmt.Errorf("timed out after %s: the rollout of template %q is not complete", o.timeout, o.name)
	case waiting.Err() != nil:
		return fmt.Errorf("interrupted: the rollout of template %q is not complete", o.name)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("template %q has been deleted", o.name)
	}
	return err
}

// show prints the progress of the rollout if it changed. It reports whether the rollout is complete.
func (o *status) show(template *v1alpha1.NamespaceTemplate) (done bool, err error) {
	now, err := newProgress(template, o.revision)
	if err != nil {
		return false, err
	}
	if now.line != o.printed {
		output.Line(o.Out, "%s", o.Commands(now.line))
		o.printed = now.line
	}
	if now.note != "" {
		o.Note("%s", now.note)
	}
	return now.isDone, nil
}
