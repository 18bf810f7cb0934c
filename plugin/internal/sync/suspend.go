package sync

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
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

// newEdit completes a command that changes a repository. The operation is what the command prints behind the name of
// the repository, such as "suspended".
func newEdit(s cli.Session, cmd *cobra.Command, operation string, patch cli.Patch) *cobra.Command {
	e := cli.NewEdit(s, cmd, v1alpha1.PolicyRepositories, operation, patch)
	e.AddContexts(cmd)
	cmd.Args = cli.OneArg("NAME")
	cmd.ValidArgsFunction = s.CompleteObject(v1alpha1.PolicyRepositories)
	cmd.RunE = oneRepository(e.Run)
	return cmd
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
