package sync

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type now struct {
	printer
	name     string
	contexts cli.Contexts
	wait     bool
	timeout  time.Duration
}

func newNow(s cli.Session) *cobra.Command {
	o := &now{printer: printer{Session: s}}
	cmd := &cobra.Command{
		Use:   "now NAME [--wait=false] [--timeout=DURATION] [--contexts=CONTEXT,...]",
		Short: "Fetch and apply the newest commit now",
		Long: templates.LongDesc(`
			Ask nstpl-sync to fetch the newest commit of a repository now, instead of at the end of spec.interval, and
			to compare the whole tree with the cluster. The command waits until nstpl-sync has done so, and prints the
			status.

			With --contexts, the command does so in several clusters at once. A cluster in which it fails is a note.

			Exit status:
			 0
			The repository is ready or, with --wait=false, the synchronization is requested, in every cluster.
			 1
			The repository is not ready, or the command failed, at least in one cluster.`),
		Example: templates.Examples(`
			# Fetch and apply the newest commit, and wait until it is in force
			kubectl nstpl sync now foo-corp

			# Do not wait, as in the last step of a pipeline
			kubectl nstpl sync now foo-corp --wait=false

			# Fetch and apply it in two clusters
			kubectl nstpl sync now foo-corp --contexts=test,production`),
		Args:              cli.OneArg("NAME"),
		ValidArgsFunction: s.CompleteObject(v1alpha1.PolicyRepositories),
		RunE: oneRepository(func(cmd *cobra.Command, name string) error {
			o.name = name
			return o.run(cmd.Context())
		}),
	}
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until the synchronization is done.")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute,
		"The length of time to wait, such as 1s, 2m or 3h. Zero means to wait without limit.")
	o.contexts.AddTo(cmd, s)
	return cmd
}

func (o *now) run(ctx context.Context) error {
	o.hasContexts = len(o.contexts) > 0
	request := time.Now().UTC().Format(time.RFC3339Nano)
	requested, failed := cli.Split(o.Session, cli.Ask(ctx, o.Session, o.contexts,
		func(ctx context.Context, in cli.Source) (*unstructured.Unstructured, error) {
			return in.Cluster.Edit(ctx, v1alpha1.PolicyRepositories, o.name,
				metav1.PatchOptions{FieldManager: cli.FieldManager},
				func(repository *unstructured.Unstructured) (map[string]any, error) {
					return requestPatch(repository, request)
				})
		}))
	if !o.wait {
		for _, r := range requested {
			output.Line(o.Out, "%s%s sync requested", r.Prefix(),
				output.Object(r.Value.GroupVersionKind().GroupKind(), o.name))
		}
		return failed
	}
	ctx, cancel := cli.WithTimeout(ctx, o.timeout)
	defer cancel()
	wait := func(r cli.Reply[*unstructured.Unstructured]) cli.Reply[view] { return o.waitFor(ctx, r) }
	served, late := cli.Split(o.Session, cluster.Each(requested, wait))
	var views []view
	for _, r := range served {
		views = append(views, r.Value)
	}
	if len(views) > 0 {
		if err := o.print(views, time.Now()); err != nil {
			return err
		}
	}
	return cmp.Or(failed, late, readiness(views))
}

func requestPatch(repository *unstructured.Unstructured, request string) (map[string]any, error) {
	if isSuspended(repository) {
		return nil, fmt.Errorf("%s is suspended: run 'kubectl nstpl sync resume %s' first",
			quoted(repository.GetName()), repository.GetName())
	}
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{v1alpha1.SyncRequestedAnnotation: request}},
	}, nil
}

// isServed reports whether nstpl-sync has served the request in the annotation of requested, or one that replaced it.
// An informer may first return the repository as it was before the request.
func isServed(repository *v1alpha1.PolicyRepository, requested *unstructured.Unstructured) bool {
	if !freshness.AtLeast(repository.ResourceVersion, requested.GetResourceVersion()) {
		return false
	}
	served := repository.Status.RequestedAt
	return served != "" && (served == requested.GetAnnotations()[v1alpha1.SyncRequestedAnnotation] ||
		served == repository.Annotations[v1alpha1.SyncRequestedAnnotation])
}

// waitFor waits until the request was served, and returns the view of the repository then.
func (o *now) waitFor(ctx context.Context, requested cli.Reply[*unstructured.Unstructured]) cli.Reply[view] {
	reply := cli.Reply[view]{Source: requested.Source}
	err := cli.Await(ctx, requested.Cluster, v1alpha1.PolicyRepositories, o.name, func() {
		requested.Note("nstpl-sync has not served the request yet%s", checkPods)
	}, func(repository *v1alpha1.PolicyRepository) (bool, error) {
		reply.Value = newView(requested.Context, repository)
		return isServed(repository, requested.Value), nil
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		reply.Err = o.interrupted(ctx)
	case apierrors.IsNotFound(err):
		reply.Err = fmt.Errorf("%s was deleted", quoted(o.name))
	default:
		reply.Err = fmt.Errorf("the synchronization is requested, but cannot be watched: %w", err)
	}
	return reply
}

func (o *now) interrupted(ctx context.Context) error {
	why := "interrupted"
	if cli.TimedOut(ctx) {
		why = fmt.Sprintf("timed out after %s", o.timeout)
	}
	return fmt.Errorf("%s: the synchronization of %s is requested but not done: "+
		"run 'kubectl nstpl sync status %s' to check again", why, quoted(o.name), o.name)
}
