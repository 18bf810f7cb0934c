package cli

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// errTimeout is the cause of the end of a context of WithTimeout.
var errTimeout = errors.New("timeout")

// WithTimeout returns a context that ends after a timeout, unless the timeout is 0.
func WithTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, errTimeout)
}

// TimedOut reports whether a context ended because of WithTimeout. Otherwise the user interrupted the command.
func TimedOut(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errTimeout) }

// Await calls done for each state of a cluster-scoped object until done reports true or returns an error, or until ctx
// ends. It returns the error of done, NotFound if the object was deleted, or why the object cannot be watched. It calls
// late once, if waiting takes so long that an operator may be missing.
func Await[T any](
	ctx context.Context, c *cluster.Cluster, resource schema.GroupVersionResource, name string, late func(),
	done func(*T) (bool, error),
) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	states, failures := make(chan *T), make(chan error)
	failed := cluster.Sender(following, failures)
	cluster.FollowObjects(following, c, resource, cluster.OnlyNamed(name), cluster.Sender(following, states),
		func(string) { failed(apierrors.NewNotFound(resource.GroupResource(), name)) }, failed)
	operatorCheck := time.After(OperatorCheckAfter)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-operatorCheck:
			late()
		case err := <-failures:
			return err
		case state := <-states:
			if isDone, err := done(state); err != nil || isDone {
				return err
			}
		}
	}
}
