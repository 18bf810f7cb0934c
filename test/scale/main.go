// Command scale measures the operator and the plugin on a cluster that grows to ten thousand namespaces, templates and
// more, and shows how each cost grows with it. It prints a table, and writes JSON and an HTML page with curves. It
// fails only if a step cannot be measured: it does not judge the figures.
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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// options are the flags.
type options struct {
	sizes                        []int
	creations, floor, probes     int
	restarts                     int
	rate                         float64
	memory                       int64 // MiB
	operator, plugin, json, html string
}

func main() {
	ctrl.SetLogger(logr.Discard()) // controller-runtime complains if clients have no logger
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runWithFlags(ctx, os.Args[1:])
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func runWithFlags(ctx context.Context, args []string) error {
	o, err := parseFlags(args, os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	return run(ctx, o, os.Stdout, os.Stderr)
}

func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	flags.SetOutput(out)
	sizes := flags.String("sizes", "1000,3000,10000",
		"numbers of namespaces, ascending; the cluster grows from one to the next")
	flags.IntVar(&o.creations, "creations", 100, "namespaces to create one by one, to measure the request")
	flags.IntVar(&o.floor, "floor", 100, "namespaces of the bare client, which come before everything else")
	flags.IntVar(&o.probes, "probes", 15,
		"namespaces to create, two per second, before each change, to compare with those during it")
	flags.Float64Var(&o.rate, "rate", 25, "namespaces to create per second")
	flags.IntVar(&o.restarts, "restarts", 1, "restarts of the operator; the figures are those of the worst")
	flags.Int64Var(&o.memory, "memory", 384, "MiB of memory that the restarted operator has")
	flags.StringVar(&o.operator, "operator", "bin/nstpl-operator", "the operator's program")
	flags.StringVar(&o.plugin, "plugin", "bin/kubectl-nstpl", "the plugin's program")
	flags.StringVar(&o.json, "json", "bin/bench-scale.json", "file to write the figures to")
	flags.StringVar(&o.html, "html", "bin/bench-scale.html", "file to write the curves to")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < 1 {
			return o, fmt.Errorf("-sizes: %q is not a positive number", text)
		}
		o.sizes = append(o.sizes, size)
	}
	if !slices.IsSorted(o.sizes) || len(slices.Compact(slices.Clone(o.sizes))) != len(o.sizes) {
		return o, fmt.Errorf("-sizes: %s is not ascending", *sizes)
	}
	if min(o.creations, o.floor, o.probes, o.restarts) < 1 || o.rate <= 0 {
		return o, errors.New("-creations, -floor, -probes, -restarts and -rate must be positive")
	}
	return o, nil
}

// run measures, and writes the report even if steps failed.
func run(ctx context.Context, o options, out, progress io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "nstpl-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := newBench(o, dir, progress)
	failed := b.run(ctx)
	if err := b.write(out); err != nil {
		return errors.Join(failed, err)
	}
	if count := len(b.report.Failures); failed == nil && count > 0 {
		return fmt.Errorf("%d steps failed: see above", count)
	}
	return cmp.Or(context.Cause(ctx), failed)
}

// write writes the report to its files and prints it.
func (b *bench) write(out io.Writer) error {
	return errors.Join(
		writeFile(b.options.json, b.report.writeJSON),
		writeFile(b.options.html, b.report.writePage),
		b.report.print(out),
	)
}

func writeFile(path string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}
