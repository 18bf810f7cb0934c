package sync

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/scheme"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

func newSuspend(s cli.Session) *cobra.Command {
	return newEdit(s, &cobra.Command{
		Use:   "suspend NAME [-o FORMAT] [--contexts=CONTEXT,...]",
		Short: "Suspend the synchronization of a repository",
		Long: templates.LongDesc(`
			Suspend the synchronization of a repository. The commit that was applied last stays in force, but
			nstpl-sync fetches no commits, and repairs and deletes nothing. Use "kubectl nstpl sync resume" to
			continue.

			With --contexts, the command does so in several clusters at once. A cluster in which it fails is a note,
			and the exit status is 1.`),
		Example: templates.Examples(`
			# Suspend the synchronization of a repository
			kubectl nstpl sync suspend foo-corp

			# Suspend it in two clusters
			kubectl nstpl sync suspend foo-corp --contexts=test,production`),
	}, "suspended", suspendPatch)
}

func newResume(s cli.Session) *cobra.Command {
	return newEdit(s, &cobra.Command{
		Use:   "resume NAME [-o FORMAT] [--contexts=CONTEXT,...]",
		Short: "Resume the synchronization of a repository",
		Long: templates.LongDesc(`
			Resume the synchronization of a repository that "kubectl nstpl sync suspend" suspended.

			With --contexts, the command does so in several clusters at once. A cluster in which it fails is a note,
			and the exit status is 1.`),
		Example: templates.Examples(`
			# Resume the synchronization of a repository
			kubectl nstpl sync resume foo-corp

			# Resume it in two clusters
			kubectl nstpl sync resume foo-corp --contexts=test,production`),
	}, "resumed", resumePatch)
}

// patcher returns the fields to change in a PolicyRepository.
type patcher func(repository *unstructured.Unstructured) (map[string]any, error)

// edit is a command that changes a repository.
type edit struct {
	cli.Session
	contexts cli.Contexts
	print    *genericclioptions.PrintFlags
	patch    patcher
}

// newEdit completes a command that changes a repository. The operation is what the command prints behind the name of
// the repository, such as "suspended".
func newEdit(s cli.Session, cmd *cobra.Command, operation string, patch patcher) *cobra.Command {
	o := &edit{
		Session: s, patch: patch, print: cli.NewPrintFlags(operation).WithTypeSetter(scheme.Scheme),
	}
	cmd.DisableFlagsInUseLine = true
	cmd.Args = cli.OneArg("NAME")
	cmd.ValidArgsFunction = s.CompleteObject(v1alpha1.PolicyRepositories)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.contexts.CheckOutput(cmd, s, o.print); err != nil {
			return err
		}
		return o.run(cmd.Context(), args[0])
	}
	o.print.AddFlags(cmd)
	o.contexts.AddTo(cmd, s)
	cli.CompleteValues(cmd, "output", o.print.AllowedFormats()...)
	return cmd
}

func (o *edit) run(ctx context.Context, name string) error {
	printer, err := o.print.ToPrinter()
	if err != nil {
		return err
	}
	edited, failed := cli.Split(o.Session, cli.Ask(ctx, o.Session, o.contexts,
		func(ctx context.Context, in cli.Source) (*unstructured.Unstructured, error) {
			return in.Cluster.Edit(ctx, v1alpha1.PolicyRepositories, name,
				metav1.PatchOptions{FieldManager: cli.FieldManager}, o.patch)
		}))
	if err := printObjects(o.Session, printer, *o.print.OutputFormat, edited); err != nil {
		return err
	}
	return failed
}

// printObjects prints what was changed, behind the context if there are several.
func printObjects(
	s cli.Session, printer printers.ResourcePrinter, format string, replies []cli.Reply[*unstructured.Unstructured],
) error {
	for _, r := range replies {
		var text strings.Builder
		if err := output.Print(&text, printer, format, r.Value); err != nil {
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

func suspendPatch(repository *unstructured.Unstructured) (map[string]any, error) {
	if isSuspended(repository) {
		return nil, fmt.Errorf("%s is already suspended", quoted(repository.GetName()))
	}
	return map[string]any{"spec": map[string]any{"suspend": true}}, nil
}

func resumePatch(repository *unstructured.Unstructured) (map[string]any, error) {
	if !isSuspended(repository) {
		return nil, fmt.Errorf("%s is not suspended", quoted(repository.GetName()))
	}
	return map[string]any{"spec": map[string]any{"suspend": nil}}, nil
}

// isSuspended reports whether spec.suspend is true.
func isSuspended(repository *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(repository.Object, "spec", "suspend")
	return suspended
}
