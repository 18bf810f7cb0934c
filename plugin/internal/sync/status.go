package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// contextTimeout is the longest time that one of several contexts is waited for, unless --request-timeout is set.
const contextTimeout = 10 * time.Second

type status struct {
	printer
	names    []string
	contexts []string
	output   cli.FormatFlag
	watch    bool
}

func newStatus(s cli.Session) *cobra.Command {
	o := &status{printer: printer{Session: s}}
	cmd := &cobra.Command{
		Use:   "status [NAME...] [-w] [-o wide|json|yaml] [--contexts=CONTEXT,...]",
		Short: "Show which commits are in force, and why newer ones are not",
		Long: templates.LongDesc(`
			Show which commit of each repository is in force. If a newer commit is not, notes below the table say
			why: the rules that it breaks with path and line, the namespaces whose deletion needs a confirmation, or
			the objects that could not be applied. The column SYNCED shows how long ago the whole tree was found to
			be in force.

			With --contexts, the command reads several clusters at once. A cluster that does not answer within ten
			seconds, or within --request-timeout, is a note.

			With --watch, the command then prints each repository again whenever its status changes.

			Exit status:
			 0
			All repositories are ready.
			 1
			A repository is not ready, a cluster could not be read, or the command failed.`),
		Example: templates.Examples(`
			# Show the repositories of the cluster
			kubectl nstpl sync status

			# Show why the newest commit is not in force
			kubectl nstpl sync status foo-corp

			# Compare the commits in two clusters
			kubectl nstpl sync status --contexts=test,production`),
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     s.CompleteObjects(v1alpha1.PolicyRepositories, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.output.Check(cmd); err != nil {
				return err
			}
			if err := o.checkContexts(); err != nil {
				return cli.UsageError(cmd, err)
			}
			o.names = slices.Compact(slices.Sorted(slices.Values(args)))
			o.format, o.hasContexts = o.output.Format, len(o.contexts) > 0
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After listing the repositories, watch for changes.")
	cmd.Flags().StringSliceVar(&o.contexts, "contexts", nil,
		"The contexts of the kubeconfig to read, separated by commas, instead of the current one.")
	s.CompleteContextList(cmd, "contexts")
	o.output.AddTo(cmd, "", "Output format", cli.FormatWide, cli.FormatJSON, cli.FormatYAML)
	return cmd
}

// checkContexts returns an error if --contexts is combined with a flag that selects one cluster, or names a context
// twice or by an empty name.
func (o *status) checkContexts() error {
	if len(o.contexts) == 0 {
		return nil
	}
	for flag, value := range map[string]*string{
		"context": o.Config.Context, "cluster": o.Config.ClusterName, "server": o.Config.APIServer,
	} {
		if value != nil && *value != "" {
			return fmt.Errorf("--contexts cannot be combined with --%s", flag)
		}
	}
	for i, name := range o.contexts {
		if name == "" || slices.Contains(o.contexts[:i], name) {
			return fmt.Errorf("--contexts: each context must be named once: %q", strings.Join(o.contexts, ","))
		}
	}
	return nil
}

// source is what was read in the cluster of a context. The context is empty without --contexts.
type source struct {
	context string
	cluster *cluster.Cluster
	views   []view
	err     error
}

func (o *status) run(ctx context.Context) error {
	contexts := o.contexts
	if !o.hasContexts {
		contexts = []string{""}
	}
	var views []view
	var readable []source
	var failed error
	for _, s := range o.readAll(ctx, contexts) {
		views = append(views, s.views...)
		if s.err == nil {
			readable = append(readable, s)
			continue
		}
		failed = s.err
		if o.hasContexts {
			o.noteFailed(s.context, s.err)
			failed = &cli.Exit{Code: 1}
		}
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

// readAll reads the clusters of contexts at the same time.
func (o *status) readAll(ctx context.Context, contexts []string) []source {
	defer o.Progress("reading policyrepositories")()
	return cluster.Each(contexts, func(name string) source {
		s := source{context: name}
		session := o.Session
		if name != "" {
			session = session.ForContext(name)
		}
		if s.cluster, s.err = session.Connect(); s.err == nil {
			s.views, s.err = o.readInTime(ctx, s)
		}
		return s
	})
}

// readInTime reads one cluster. Of several clusters, none delays the result for longer than contextTimeout.
func (o *status) readInTime(ctx context.Context, s source) ([]view, error) {
	if timeout := o.Config.Timeout; s.context == "" || timeout != nil && *timeout != "0" {
		return o.read(ctx, s)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, contextTimeout,
		fmt.Errorf("the cluster did not answer within %s", contextTimeout))
	defer cancel()
	views, err := o.read(ctx, s)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return views, err
}

// read returns the named repositories of a cluster, or all. It returns those that it can read in spite of an error.
func (o *status) read(ctx context.Context, s source) ([]view, error) {
	var views []view
	if len(o.names) == 0 {
		repositories, err := s.cluster.PolicyRepositories(ctx)
		for i := range repositories {
			views = append(views, newView(s.context, &repositories[i]))
		}
		return views, err
	}
	var errs []error
	for _, name := range o.names {
		repository, err := s.cluster.PolicyRepository(ctx, name)
		if errors.Is(err, cluster.NotInstalledError{}) {
			return nil, err
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		views = append(views, newView(s.context, repository))
	}
	return views, errors.Join(errs...)
}

// noteFailed prints why a cluster could not be read.
func (o *status) noteFailed(context string, err error) {
	for line := range strings.Lines(output.Error(err)) {
		o.Note("context %q: %s", context, strings.TrimPrefix(strings.TrimSpace(line), "error: "))
	}
}
