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
var tour = []string{"README.md", "docs/templates.md", "docs/sync.md"}

func main() {
	command := func() error { return run(os.Stdout) }
	if len(os.Args) == 4 && os.Args[1] == serveGitCommand {
		command = func() error { return serveGit(context.Background(), os.Args[2], os.Args[3]) }
	}
	if err := command(); err != nil {
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
	home := filepath.Join(root, ".cluster", "data", "git")
	if err := os.Mkdir(home, 0o755); err != nil {
		return err
	}
	sh = sh.withGit(home)
	if _, err := startSync(ctx, sh, home, filepath.Join(home, "sync.log"), func(proxy string) error {
		return startGitServer(home, proxy)
	}); err != nil {
		return err
	}
	for _, step := range steps {
		if err := sh.play(ctx, step.Command, out); err != nil {
			return fmt.Errorf("%w (the operator's log: %s)", err, log)
		}
	}
	clone := filepath.Join(home, "policies")
	if err := sh.run(ctx, fmt.Sprintf("git -C %q remote set-url origin %q", clone, bareRepository(home)),
		out); err != nil {
		return err
	}
	fmt.Fprintf(out,
		"\nThe cluster, the operator, nstpl-sync and the Git server stay up until `make cluster-down`. To use "+
			"them in this shell:\n\nexport KUBECONFIG=%q PATH=%q:%q:\"$PATH\"\n\nThe cluster follows the repository of which "+
			"this is a clone. Commit and push there:\n\ncd %q\n", sh.kubeconfig, sh.bin, filepath.Dir(sh.kubectl), clone)
	return nil
}
