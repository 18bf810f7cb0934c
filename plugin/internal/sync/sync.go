// Package sync holds the commands about PolicyRepositories: trees of policies that the cluster follows.
//
// nstpl-sync fetches and applies the commits and reports in the status of each PolicyRepository. Status and history
// print that status. The other commands change the PolicyRepository, as a user could with kubectl edit: they set
// spec.suspend, or an annotation that nstpl-sync reads.
//
// Every user who may write to the repository of a tree chooses the paths, messages, authors and subjects in the status.
// So every command prints them with the functions of package output, which escape control characters.
package sync

import (
	"cmp"
	"fmt"
	"regexp"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// New returns the command `kubectl nstpl sync`.
func New(s cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Show, start, confirm and suspend the synchronization with Git",
		Long: templates.LongDesc(`
			A PolicyRepository is a tree of policies, in Git or in an artifact of Flux, that the cluster follows. Show
			which commit is in force and why a newer one is not, apply a new commit at once, confirm the deletion of
			namespaces, and suspend and resume the synchronization.

			NAME is the name of a PolicyRepository, or policyrepository/NAME.`),
		Example: templates.Examples(`
			# Show which commits are in force
			kubectl nstpl sync status

			# Fetch and apply the newest commit now
			kubectl nstpl sync now foo-corp`),
	}
	return cli.Subcommands(cmd, newStatus(s), newNow(s), newConfirm(s), newSuspend(s), newResume(s), newHistory(s))
}

// oneRepository passes the name in the first argument to run.
var oneRepository = cli.PolicyRepositoryResource().Named

// quoted returns a PolicyRepository in the notation of kubectl's errors about objects.
func quoted(name string) string {
	return fmt.Sprintf("%s %q", v1alpha1.PolicyRepositories.GroupResource(), name)
}

// short abbreviates the hash of a commit or the digest of an artifact. It returns "<none>" if there is none.
func short(commit string) string { return cmp.Or(output.ShortCommit(commit), "<none>") }

// The names of commits and artifacts, and abbreviations of them.
var (
	hashes = regexp.MustCompile(
		`^([0-9a-f]{40}|[0-9a-f]{64}|sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})$`)
	abbreviation = regexp.MustCompile(`^([0-9a-f]{7,64}|sha(256|384|512):[0-9a-f]{7,128})$`)
)
