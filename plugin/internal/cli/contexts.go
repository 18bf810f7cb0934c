package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// contextTimeout is how long the first answer of one of several clusters is awaited, unless --request-timeout is set.
const contextTimeout = 10 * time.Second

// Contexts is the flag --contexts.
type Contexts []string

// AddTo adds the flag and its check to a command.
func (c *Contexts) AddTo(cmd *cobra.Command, s Session) {
	cmd.Flags().StringSliceVar((*[]string)(c), "contexts", nil,
		"The contexts of the kubeconfig to use, separated by commas, instead of the current one.")
	s.CompleteContextList(cmd, "contexts")
	beforeRun(cmd, func([]string) error { return c.check(s) })
}

// check returns an error if the flag is combined with a flag that selects one cluster, or names a context twice or by
// an empty name.
func (c Contexts) check(s Session) error {
	if len(c) == 0 {
		return nil
	}
	for flag, value := range map[string]*string{
		"context": s.Config.Context, "cluster": s.Config.ClusterName, "server": s.Config.APIServer,
	} {
		if value != nil && *value != "" {
			return fmt.Errorf("--contexts cannot be combined with --%s", flag)
		}
	}
	for i, name := range c {
		if name == "" || slices.Contains(c[:i], name) {
			return fmt.Errorf("--contexts: each context must be named once: %q", strings.Join(c, ","))
		}
	}
	return nil
}

// CheckOutput returns a UsageError if the flag is combined with an output format of kubectl, which describes one
// object.
func (c Contexts) CheckOutput(cmd *cobra.Command, written *Written) error {
	if len(c) > 0 && written.HasFormat() {
		return UsageError(cmd, errors.New("--contexts cannot be combined with --output"))
	}
	return nil
}

// Source is the cluster of a context. The context is empty without --contexts.
type Source struct {
	// Session is that of the context. Its notes begin with the context.
	Session
	Context string
	Cluster *cluster.Cluster
}

// Prefix returns what begins a line about the cluster: its context, or nothing without --contexts.
func (s Source) Prefix() string { return Prefix(s.Context) }

// Prefix returns what begins a line about the cluster of a context. It is empty without a context.
func Prefix(context string) string {
	if context == "" {
		return ""
	}
	return fmt.Sprintf("context %q: ", context)
}

// Reply is what was read or written in the cluster of a context.
type Reply[T any] struct {
	Source
	Value T
	Err   error
}

// Ask calls do for the clusters of all contexts at the same time, or for the current one if the flag is not set. Of
// several clusters, one that does not answer delays the result by no more than contextTimeout.
func Ask[T any](
	ctx context.Context, s Session, names Contexts, do func(context.Context, Source) (T, error),
) []Reply[T] {
	if len(names) == 0 {
		names = Contexts{""}
	} else {
		defer s.Progress("waiting for several clusters")()
	}
	return cluster.Each(names, func(name string) Reply[T] {
		r := Reply[T]{Source: Source{Session: s.ForContext(name), Context: name}}
		if r.Cluster, r.Err = r.Connect(); r.Err == nil {
			r.Err = r.waitAnswer(ctx)
		}
		if r.Err == nil {
			r.Value, r.Err = do(ctx, r.Source)
		}
		return r
	})
}

// waitAnswer returns an error if a cluster gives no answer in time, if it is one of several. What is done there may
// take longer.
func (s Source) waitAnswer(ctx context.Context) error {
	if timeout := s.Config.Timeout; s.Context == "" || timeout != nil && *timeout != "0" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, contextTimeout,
		fmt.Errorf("the cluster did not answer within %s", contextTimeout))
	defer cancel()
	if _, err := s.Cluster.Server(ctx); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil // a refusal is an answer, too
}

// Split returns the replies without an error, and an error if there are others. With --contexts, it prints the errors,
// so that none hides another, and returns an Exit.
func Split[T any](s Session, replies []Reply[T]) (good []Reply[T], failed error) {
	for _, r := range replies {
		switch {
		case r.Err == nil:
			good = append(good, r)
		case r.Context == "":
			failed = r.Err
		default:
			NoteFailed(s, r.Context, r.Err)
			failed = &Exit{Code: 1}
		}
	}
	return good, failed
}

// NoteFailed prints why something failed in the cluster of a context.
func NoteFailed(s Session, context string, err error) {
	for line := range strings.Lines(output.Error(err)) {
		s.ForContext(context).Note("%s", strings.TrimPrefix(strings.TrimSpace(line), "error: "))
	}
}
