package sync

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/kubectl/pkg/scheme"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

func newSuspend(s cli.Session) *cobra.Command {
	return newEdit(s, &cobra.Command{
		Use:   "suspend NAME [-o FORMAT]",
		Short: "Suspend the synchronization of a repository",
		Long: templates.LongDesc(`
			Suspend the synchronization of a repository. The commit that was applied last stays in force, but
			nstpl-sync fetches no commits, and repairs and deletes nothing. Use "kubectl nstpl sync resume" to
			continue.`),
		Example: templates.Examples(`
			# Suspend the synchronization of a repository
			kubectl nstpl sync suspend foo-corp`),
	}, "suspended", suspendPatch)
}

func newResume(s cli.Session) *cobra.Command {
	return newEdit(s, &cobra.Command{
		Use:   "resume NAME [-o FORMAT]",
		Short: "Resume the synchronization of a repository",
		Long: templates.LongDesc(`
			Resume the synchronization of a repository that "kubectl nstpl sync suspend" suspended.`),
		Example: templates.Examples(`
			# Resume the synchronization of a repository
			kubectl nstpl sync resume foo-corp`),
	}, "resumed", resumePatch)
}

// patcher returns the fields to change in a PolicyRepository.
type patcher func(repository *unstructured.Unstructured) (map[string]any, error)

// newEdit completes a command that changes a repository. The operation is what the command prints behind the name of
// the repository, such as "suspended".
func newEdit(s cli.Session, cmd *cobra.Command, operation string, patch patcher) *cobra.Command {
	flags := genericclioptions.NewPrintFlags(operation).WithTypeSetter(scheme.Scheme)
	cmd.DisableFlagsInUseLine = true
	cmd.Args = cli.OneArg("NAME")
	cmd.ValidArgsFunction = s.CompleteObject(v1alpha1.PolicyRepositories)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return runEdit(cmd.Context(), s, flags, args[0], patch)
	}
	flags.AddFlags(cmd)
	cli.CompleteValues(cmd, "output", flags.AllowedFormats()...)
	return cmd
}

func runEdit(
	ctx context.Context, s cli.Session, flags *genericclioptions.PrintFlags, name string, patch patcher,
) error {
	c, err := s.Connect()
	if err != nil {
		return err
	}
	printer, err := flags.ToPrinter()
	if err != nil {
		return err
	}
	repository, err := c.Edit(ctx, v1alpha1.PolicyRepositories, name,
		metav1.PatchOptions{FieldManager: cli.FieldManager}, patch)
	if err != nil {
		return err
	}
	return output.Print(s.Out, printer, *flags.OutputFormat, repository)
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
