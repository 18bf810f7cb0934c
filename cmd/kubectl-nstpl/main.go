// Command kubectl-nstpl is the kubectl plugin `kubectl nstpl`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/cmd/internal/memory"
	"nstpl.dev/nstpl/plugin"
)

// gcPercent is how much a large heap may grow before it is collected. Commands that read a large cluster then need a
// third less memory, and a tenth more processor time, than with Go's 100 percent.
const gcPercent = 50

func main() {
	memory.Collect(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(plugin.Run(ctx, os.Args, streams))
}
