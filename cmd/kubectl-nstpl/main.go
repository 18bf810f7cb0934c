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

// growth is for commands that read a large cluster. They need a third less memory than with Go's 100 percent. The size is
// what they need for 10,000 namespaces in any case.
var growth = memory.Growth{Size: 160 << 20, Percent: 50}

func main() {
	memory.Collect(growth)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(plugin.Run(ctx, os.Args, streams))
}
