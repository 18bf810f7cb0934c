// Command demo installs the operator on the control plane of `make cluster-up` and plays the console blocks of the
// README and of the pages that continue it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/page"
)

// tour lists the pages that are played in one session, in this order. Every other page has a session of its own.
var tour = []string{"README.md", "docs/templates.md"}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	sh := shell{
		dir:        root,
		bin:        filepath.Join(root, "bin"),
		kubectl:    filepath.Join(root, ".cluster", "kubectl"),
		kubeconfig: filepath.Join(root, ".cluster", "kubeconfig"),
	}
	var steps []page.Step
	for _, path := range tour {
		more, err := page.Read(filepath.Join(root, path))
		if err != nil {
			return err
		}
		steps = append(steps, more...)
	}
	install, err := installation(controlplane.Version())
	if err != nil {
		return err
	}
	if err := sh.play(ctx, install, out); err != nil {
		return err
	}
	log := filepath.Join(root, ".cluster", "data", "operator.log") // deleted by cluster-down
	if _, err := startOperator(ctx, sh, log); err != nil {
		return err
	}
	fmt.Fprintf(out,
		"\nThe control plane has no nodes, so the operator runs as a process, with the rights of its ServiceAccount.\nIts log: %s\n", log)
	for _, step := range steps {
		if err := sh.play(ctx, step.Command, out); err != nil {
			return fmt.Errorf("%w (the operator's log: %s)", err, log)
		}
	}
	fmt.Fprintf(out, "\nThe cluster and the operator stay up until `make cluster-down`. To use them in this shell:\n\n"+
		"export KUBECONFIG=%q PATH=%q:%q:\"$PATH\"\n", sh.kubeconfig, sh.bin, filepath.Dir(sh.kubectl))
	return nil
}
