package sync

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// change is what a watch reports. If err is nil, the repository changed or was deleted.
type change struct {
	view    view
	deleted bool
	// err says that the user may not watch the repositories in the cluster of the view's context.
	err error
}

// follow prints each repository that changes, until ctx ends. With --contexts, it goes on with the other clusters if
// the user may not watch one of them.
func (o *status) follow(ctx context.Context, read []cli.Reply[[]view]) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changes := make(chan change)
	send := cluster.Sender(ctx, changes)
	shown := map[string]view{}
	for _, r := range read {
		for _, v := range r.Value {
			shown[v.title()] = v
		}
		for _, only := range watched(o.names) {
			cluster.FollowObjects(ctx, r.Cluster, v1alpha1.PolicyRepositories, only,
				func(repository *v1alpha1.PolicyRepository) { send(change{view: newView(r.Context, repository)}) },
				func(name string) { send(change{view: view{Context: r.Context, Name: name}, deleted: true}) },
				func(err error) { send(change{view: view{Context: r.Context}, err: err}) })
		}
	}
	var failed error
	for {
		select {
		case <-ctx.Done():
			return failed // the user interrupted the command
		case next := <-changes:
			switch {
			case next.err == nil:
				if err := o.printChange(shown, next); err != nil {
					return err
				}
			case o.hasContexts:
				cli.NoteFailed(o.Session, next.view.Context, next.err)
				failed = &cli.Exit{Code: 1}
			default:
				return next.err
			}
		}
	}
}

// printChange prints a change, unless the repository is still as it was shown.
func (o *status) printChange(shown map[string]view, next change) error {
	title := next.view.title()
	before, wasShown := shown[title]
	switch {
	case next.deleted && !wasShown, !next.deleted && wasShown && next.view.isSame(before):
		return nil
	case next.deleted:
		next.view = before.deleted()
		delete(shown, title)
	default:
		shown[title] = next.view
	}
	return o.print([]view{next.view}, time.Now())
}

// watched returns what to watch so as to see the named repositories, or all.
func watched(names []string) []metav1.ListOptions {
	if len(names) == 0 {
		return []metav1.ListOptions{{}}
	}
	var options []metav1.ListOptions
	for _, name := range names {
		options = append(options, cluster.OnlyNamed(name))
	}
	return options
}
