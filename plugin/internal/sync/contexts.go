package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// contextTimeout is the longest time that one of several contexts is waited for, unless --request-timeout is set.
const contextTimeout = 10 * time.Second

// contexts is the flag --contexts.
type contexts []string

// addTo adds the flag to a command.
func (c *contexts) addTo(cmd *cobra.Command, s cli.Session) {
	cmd.Flags().StringSliceVar((*[]string)(c), "contexts", nil,
		"The contexts of the kubeconfig to use, separated by commas, instead of the current one.")
	s.CompleteContextList(cmd, "contexts")
}

// check returns an error if the flag is combined with a flag that selects one cluster, or names a context twice or by
// an empty name.
func (c contexts) check(cmd *cobra.Command, s cli.Session) error {
	if len(c) == 0 {
		return nil
	}
	for flag, value := range map[string]*string{
		"context": s.Config.Context, "cluster": s.Config.ClusterName, "server": s.Config.APIServer,
	} {
		if value != nil && *value != "" {
			return cli.UsageError(cmd, fmt.Errorf("--contexts cannot be combined with --%s", flag))
		}
	}
	for i, name := range c {
		if name == "" || slices.Contains(c[:i], name) {
			return cli.UsageError(cmd,
				fmt.Errorf("--contexts: each context must be named once: %q", strings.Join(c, ",")))
		}
	}
	return nil
}

// checkOutput is check for commands with kubectl's output formats, which describe one object.
func (c contexts) checkOutput(cmd *cobra.Command, s cli.Session, flags *genericclioptions.PrintFlags) error {
	if len(c) > 0 && *flags.OutputFormat != "" {
		return cli.UsageError(cmd, errors.New("--contexts cannot be combined with --output"))
	}
	return c.check(cmd, s)
}

// source is the cluster of a context. The context is empty without --contexts.
type source struct {
	context string
	cluster *cluster.Cluster
}

// prefix returns what begins a line about the cluster: its context, or nothing without --contexts.
func (s source) prefix() string {
	if s.context == "" {
		return ""
	}
	return fmt.Sprintf("context %q: ", s.context)
}

// reply is what was read or written in the cluster of a context.
type reply[T any] struct {
	source
	value T
	err   error
}

// ask calls do for the clusters of all contexts at the same time, or for the current one if the flag is not set. Of
// several clusters, none delays the result for longer than contextTimeout.
func ask[T any](
	ctx context.Context, s cli.Session, names contexts, do func(context.Context, source) (T, error),
) []reply[T] {
	if len(names) == 0 {
		names = contexts{""}
	}
	return cluster.Each(names, func(name string) reply[T] {
		r := reply[T]{source: source{context: name}}
		session := s
		if name != "" {
			session = s.ForContext(name)
		}
		if r.cluster, r.err = session.Connect(); r.err == nil {
			r.value, r.err = inTime(ctx, s, r.source, do)
		}
		return r
	})
}

// inTime calls do with a time limit if there are several clusters.
func inTime[T any](
	ctx context.Context, s cli.Session, in source, do func(context.Context, source) (T, error),
) (T, error) {
	if timeout := s.Config.Timeout; in.context == "" || timeout != nil && *timeout != "0" {
		return do(ctx, in)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, contextTimeout,
		fmt.Errorf("the cluster did not answer within %s", contextTimeout))
	defer cancel()
	value, err := do(ctx, in)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return value, err
}

// split returns the replies without an error, and an error if there are others. With --contexts, it prints the errors,
// so that none hides another, and returns an Exit.
func split[T any](s cli.Session, replies []reply[T]) (good []reply[T], failed error) {
	for _, r := range replies {
		switch {
		case r.err == nil:
			good = append(good, r)
		case r.context == "":
			failed = r.err
		default:
			noteFailed(s, r.context, r.err)
			failed = &cli.Exit{Code: 1}
		}
	}
	return good, failed
}

// noteFailed prints why something failed in the cluster of a context.
func noteFailed(s cli.Session, context string, err error) {
	for line := range strings.Lines(output.Error(err)) {
		s.Note("context %q: %s", context, strings.TrimPrefix(strings.TrimSpace(line), "error: "))
	}
}
