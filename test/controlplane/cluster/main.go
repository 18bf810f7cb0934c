// Command cluster runs a control plane for interactive use, in the folder .cluster: `up` starts one that outlives the
// command, `down` stops it, and `build` only compiles the programs that `up` and the tests need.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"nstpl.dev/nstpl/test/controlplane"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	const dir = ".cluster"
	switch {
	case slices.Equal(args, []string{"up"}):
		return up(ctx, dir, os.Stdout)
	case slices.Equal(args, []string{"down"}):
		return down(ctx, dir)
	case slices.Equal(args, []string{"build"}):
		_, err := controlplane.Build(ctx, controlplane.Version(), os.Stderr)
		return err
	case len(args) == 2 && args[0] == keeperCommand:
		return keep(ctx, args[1])
	default:
		return errors.New("usage: cluster up|down|build")
	}
}
