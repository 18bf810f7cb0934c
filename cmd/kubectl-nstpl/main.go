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

func main() {
	// Commands that read a large cluster need a third less memory than with Go's 100 percent.
	memory.Collect(memory.Growth{Size: 160 << 20, Percent: 50})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(plugin.Run(ctx, os.Args, streams))
}
