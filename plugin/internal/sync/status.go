package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

type status struct {
	printer
	names    []string
	contexts cli.Contexts
	watch    bool
}

func newStatus(s cli.Session) *cobra.Command {
	o := &status{printer: printer{Session: s}}
	cmd := &cobra.Command{
		Use:   "status [NAME...] [-w] [-o wide|name|json|yaml|...] [--contexts=CONTEXT,...]",
		Short: "Show which commits are in force, and why newer ones are not",
		Long: templates.LongDesc(`
			Show which commit of each repository is in force. If a newer commit is not, notes below the table say
			why: the rules that it breaks with path and line, the namespaces whose deletion needs a confirmation, or
			the objects that could not be applied. The column SYNCED shows how long ago the whole tree was found to
			be in force. If no nstpl-sync holds its lease, the command shows the last report, and fails.

			With --contexts, the command reads several clusters at once. A cluster that does not answer within ten
			seconds, or within --request-timeout, is a note.

			With --watch, the command then prints each repository again whenever its status changes. A missing
			nstpl-sync is a note then, and the exit status does not depend on the repositories.

			Exit status:
			 0
			All repositories are ready.
			 1
			A repository is not ready, no nstpl-sync holds its lease, a cluster was not read, or the command failed.`),
		Example: templates.Examples(`
			# Show the repositories of the cluster
			kubectl nstpl sync status

			# Show why the newest commit is not in force
			kubectl nstpl sync status foo-corp

			# Compare the commits in two clusters
			kubectl nstpl sync status --contexts=test,production`),
		ValidArgsFunction: s.CompleteObjects(v1alpha1.PolicyRepositories, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := cli.PolicyRepositoryResource().Names(args)
			if err != nil {
				return cli.UsageError(cmd, err)
			}
			o.names = slices.Compact(slices.Sorted(slices.Values(names)))
			o.hasContexts = len(o.contexts) > 0
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After listing the repositories, watch for changes.")
	o.contexts.AddTo(cmd, s)
	o.output.AddTo(cmd, cli.ListOptions{Wide: true, Names: true, Watch: &o.watch})
	return cmd
}

func (o *status) run(ctx context.Context) error {
	replies := cli.Ask(ctx, o.Session, o.contexts, o.read)
	readable, failed := cli.Split(o.Session, replies)
	var views []view
	for _, r := range replies { // also what was read in spite of an error
		views = append(views, r.Value...)
	}
	if len(views) > 0 || failed == nil {
		if err := o.print(views, time.Now()); err != nil {
			return err
		}
	}
	switch {
	case o.watch && len(readable) > 0:
		if err := o.follow(ctx, readable); err != nil {
			return err
		}
		return failed
	case failed != nil:
		return failed
	}
	return readiness(views)
}

// errNotRunning returns the error that no nstpl-sync holds its lease, or nil. isUnknown says that the lease cannot be
// read.
func errNotRunning(leader cluster.Leader, unread error) (isUnknown bool, err error) {
	if missing := cli.NoSync(leader, unread); missing != "" {
		return false, errors.New(missing)
	}
	if unread != nil {
		return true, fmt.Errorf("lease %s in namespace %s cannot be read, so it is unknown whether nstpl-sync is "+
			"running: %w", cluster.SyncLease, v1alpha1.OperatorNamespace, unread)
	}
	return false, nil
}

// read returns the named repositories of a cluster, or all. It returns those that it can read in spite of an error.
func (o *status) read(ctx context.Context, s cli.Source) ([]view, error) {
	defer s.Progress("reading policyrepositories")()
	views, err := o.readRepositories(ctx, s)
	if len(views) == 0 {
		return views, err
	}
	leader, unread := s.Cluster.Leader(ctx, cluster.SyncLease)
	isUnknown, notRunning := errNotRunning(leader, unread)
	if notRunning != nil && (o.watch || isUnknown) {
		s.Note("%v", notRunning)
		return views, err
	}
	return views, errors.Join(err, notRunning)
}

func (o *status) readRepositories(ctx context.Context, s cli.Source) ([]view, error) {
	var views []view
	if len(o.names) == 0 {
		repositories, err := s.Cluster.PolicyRepositories(ctx)
		for i := range repositories {
			views = append(views, newView(s.Context, &repositories[i]))
		}
		return views, err
	}
	var errs []error
	for _, name := range o.names {
		repository, err := s.Cluster.PolicyRepository(ctx, name)
		if errors.Is(err, cluster.NotInstalledError{}) {
			return nil, err
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		views = append(views, newView(s.Context, repository))
	}
	return views, errors.Join(errs...)
}
