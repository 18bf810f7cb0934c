// Command load measures the operator on its own control plane against a floor: a bare client that writes the same
// objects when a namespace is created, and does nothing else. It prints a table and does not judge it. With -docs, it
// also writes the figures to the manuals.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/measure"
)

// sizes are the sizes of the phases.
type sizes struct {
	creations, serial, flood, writers, rollout, rounds, edits, namespaces int

	idle     time.Duration
	operator string // path
}

func main() {
	var s sizes
	flag.IntVar(&s.creations, "creations", 200, "namespaces to create one by one that no template matches")
	flag.IntVar(&s.serial, "serial", 50, "namespaces to create one by one")
	flag.IntVar(&s.flood, "flood", 500, "namespaces to create at once")
	flag.IntVar(&s.writers, "writers", 16, "how many create them")
	flag.IntVar(&s.rollout, "rollout-namespaces", 500, "namespaces that a template's change rolls out to")
	flag.IntVar(&s.rounds, "rounds", 2, "how often to flood each side, and to roll out")
	flag.IntVar(&s.edits, "edits", 100, "populated objects to edit")
	flag.DurationVar(&s.idle, "idle", time.Minute, "how long to watch an idle operator")
	flag.IntVar(&s.namespaces, "namespaces", 0,
		"namespaces that the operator has at least populated before it is idle and restarted")
	flag.StringVar(&s.operator, "operator", "bin/nstpl-operator", "the operator's program")
	docs := flag.Bool("docs", false,
		"write the figures to docs/performance.md and README.md; the sizes must be the default ones, which the manuals name")
	flag.Parse()
	if *docs && flag.NFlag() > 1 {
		fmt.Fprintln(os.Stderr, "error: -docs does not combine with other flags")
		os.Exit(2)
	}
	if err := run(s, *docs, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(s sizes, writesManuals bool, out, progress io.Writer) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if writesManuals {
		if err := checkManuals(); err != nil {
			return err
		}
	}
	measured, err := measureAll(ctx, s, progress)
	if err != nil {
		return err
	}
	if err := measured.print(out); err != nil || !writesManuals {
		return err
	}
	return writeManuals(measured)
}

// measureAll runs the phases on a control plane of its own. When it returns, nothing runs any longer that writes to the
// terminal.
func measureAll(ctx context.Context, s sizes, progress io.Writer) (measured outcome, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	dir, err := os.MkdirTemp("", "nstpl-load-")
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cluster, err := controlplane.Start(ctx, controlplane.Options{Progress: progress})
	if err != nil {
		return measured, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return measured, err
	}
	server, err := client.Discovery().ServerVersion()
	if err != nil {
		return measured, err
	}
	b := &bench{
		sizes: s, progress: progress, dir: dir, cluster: cluster, client: client,
		populated: measure.NewSightings(), made: map[side]int{}, fail: fail, stopOperator: func() error { return nil },
	}
	defer func() {
		fail(nil) // ends the watches, which would complain about the API server's end
		b.background.Wait()
		err = errors.Join(err, b.stopOperator())
	}()
	if err = b.start(ctx); err == nil {
		err = b.run(ctx)
	}
	if err != nil {
		return measured, cmp.Or(context.Cause(ctx), err)
	}
	return outcome{table: b.table, kubernetes: server.Major + "." + server.Minor, cores: runtime.NumCPU()}, nil
}

// run runs the phases.
func (b *bench) run(ctx context.Context) error {
	// The first namespace of each side includes work that is done only once.
	if _, err := b.createAlternately(ctx, func(pairs int) bool { return pairs == 1 }); err != nil {
		return err
	}
	if err := b.memory(ctx, "memory at the start"); err != nil {
		return err
	}
	if err := b.admission(ctx); err != nil {
		return err
	}
	b.printProgress("%d namespaces one by one", b.sizes.serial)
	idle, err := b.createAlternately(ctx, func(pairs int) bool { return pairs == b.sizes.serial })
	if err != nil {
		return err
	}
	b.table.latencies("new namespace", idle, map[int]string{50: "at most 1.5x", 95: "at most 3x"})
	if err := b.flood(ctx); err != nil {
		return err
	}
	busy, err := b.rollout(ctx)
	if err != nil {
		return err
	}
	b.table.latencies("new namespace during a rollout", busy, nil)
	slowdown := func(of side) float64 {
		return float64(measure.Percentile(busy[of], 95)) / float64(measure.Percentile(idle[of], 95))
	}
	b.table.compare("new namespace during a rollout: p95 to that of idle", "x", slowdown(floorSide),
		slowdown(operatorSide), "at most 2")
	if err := b.drift(ctx); err != nil {
		return err
	}
	if missing := b.sizes.namespaces - b.made[operatorSide] - b.made[rolloutSide]; missing > 0 {
		b.printProgress("%d more namespaces", missing)
		if _, err := b.createConcurrently(ctx, rolloutSide, missing, b.sizes.writers); err != nil {
			return err
		}
	}
	if err := b.memory(ctx, "memory after that"); err != nil {
		return err
	}
	if err := b.idle(ctx); err != nil {
		return err
	}
	return b.restart(ctx)
}
