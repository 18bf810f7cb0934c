package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/measure"
	"nstpl.dev/nstpl/test/operator"
	"nstpl.dev/nstpl/test/process"
)

// bench is a control plane that grows, and what was measured on it.
type bench struct {
	options  options
	dir      string
	progress *progress
	report   *report

	cluster *controlplane.Cluster
	config  *rest.Config
	client  kubernetes.Interface
	// bareClient is that of a second control plane, on which nothing is installed.
	bareClient kubernetes.Interface
	// creator may create and change namespaces, and create ConfigMaps everywhere. It may use no template.
	creator  kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
	operator *operator.Process
	// webhooks is the address of the operator's webhooks. A restart must not change it.
	webhooks string
	// content is what the cluster contains, or will contain after the step that creates it.
	content content
	// tree is the folder of the tree of policies.
	tree string
	// created has the objects of the content that exist, by kind and name, and namespaces those that are populated.
	created    map[string]bool
	namespaces map[int]bool
	rules      int
	secured    int
	bare       floors
	// writesPerNamespace is how many requests the operator made for a new namespace of this size, which include the
	// status of its templates and policy spaces.
	writesPerNamespace float64
	stage              int
}

// floors are the figures of the bare client before anything was installed.
type floors struct {
	population
	rollout, move, deletion time.Duration // of one namespace
}

func newBench(o options, dir string, out io.Writer) *bench {
	return &bench{
		options: o, dir: dir,
		progress: &progress{out: out, started: time.Now()},
		report: &report{
			Kubernetes: controlplane.Version(), Processors: runtime.NumCPU(), Started: time.Now(), Sizes: o.sizes,
		},
		created: map[string]bool{}, namespaces: map[int]bool{},
	}
}

// run starts a control plane and measures. An error ends the run; a step that fails does not.
func (b *bench) run(ctx context.Context) (err error) {
	defer func() { b.report.Seconds = time.Since(b.report.Started).Seconds() }()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	// Profiles show where the API server spends its time: kubectl get --raw /debug/pprof/profile?seconds=10
	b.cluster, err = controlplane.Start(ctx, controlplane.Options{
		Progress: b.progress.out, APIServerArgs: []string{"--profiling=true"},
	})
	if err != nil {
		return err
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if err := b.cluster.Wait(ctx); err != nil {
			fail(err)
		}
	})
	defer func() {
		fail(nil) // ends the watches
		waiting.Wait()
		err = errors.Join(err, b.cluster.Stop())
	}()
	if err := b.connect(); err != nil {
		return err
	}
	bare, err := controlplane.Start(ctx, controlplane.Options{Progress: io.Discard})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Stop()) }()
	if b.bareClient, err = kubernetes.NewForConfig(bare.RESTConfig()); err != nil {
		return err
	}
	b.progress.note("kubeconfig while this runs: %s", b.cluster.Kubeconfig)
	if err := b.measureFloor(ctx); err != nil {
		return fmt.Errorf("measure the bare client: %w", errors.Join(context.Cause(ctx), err))
	}
	if err := b.install(ctx); err != nil {
		return fmt.Errorf("install the operator: %w", errors.Join(context.Cause(ctx), err))
	}
	defer func() { err = errors.Join(err, b.stopOperator()) }()
	for _, size := range b.options.sizes {
		b.measureSize(ctx, content(size))
	}
	return context.Cause(ctx)
}

func (b *bench) connect() (err error) {
	b.config = b.cluster.RESTConfig()
	b.config.WarningHandlerWithContext = rest.NoWarnings{} // such as about parents that are created at the same time
	if b.dynamic, err = dynamic.NewForConfig(b.config); err != nil {
		return err
	}
	if b.metadata, err = metadata.NewForConfig(b.config); err != nil {
		return err
	}
	// Events of all namespaces are cheaper to decode than with JSON.
	typed := rest.CopyConfig(b.config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	b.client, err = kubernetes.NewForConfig(typed)
	return err
}

// install installs nstpl and starts the operator.
func (b *bench) install(ctx context.Context) error {
	defer b.progress.begin("installation")()
	if err := operator.Install(ctx, b.cluster); err != nil {
		return err
	}
	if err := b.createCreator(ctx); err != nil {
		return err
	}
	if err := operator.WriteKubeconfig(ctx, b.cluster, b.operatorKubeconfig()); err != nil {
		return err
	}
	addresses, err := process.FreeAddresses(1)
	if err != nil {
		return err
	}
	b.webhooks = addresses[0]
	return b.startOperator(ctx, b.options.operator)
}

// task is what is done at a size of the cluster.
type task struct {
	name string
	run  func(context.Context) error
	// limit is the time that it may take, in addition to perNamespace for each namespace of the cluster.
	limit, perNamespace time.Duration
	// last reports whether it is done only at the greatest size. Those that take long, and whose figures are compared
	// with a goal or a floor rather than with those at other sizes, are.
	last bool
}

func (b *bench) tasks() []task {
	return []task{
		{"templates and policy spaces", b.createPolicies, 2 * time.Minute, 40 * time.Millisecond, false},
		{"creation requests", b.measureRequests, time.Minute, 0, false},
		{"constraints", b.createConstraints, 2 * time.Minute, 0, false},
		{"population", b.measurePopulation, time.Minute, 100 * time.Millisecond, false},
		{"attribute rules", b.createRules, 2 * time.Minute, 15 * time.Millisecond, false},
		{"creation requests with rules and constraints", b.measureRequestsWithRules, time.Minute, 0, false},
		{"commands", b.measureCommands, 2 * time.Minute, 20 * time.Millisecond, false},
		{"rollout", b.measureRollout, 2 * time.Minute, 40 * time.Millisecond, false},
		{"move of a policy space", b.measureMove, 2 * time.Minute, 80 * time.Millisecond, false},
		{"restart", b.measureRestart, 2 * time.Minute, 20 * time.Millisecond, false},
		{"disruptions", b.measureDisruptions, 3 * time.Minute, 20 * time.Millisecond, true},
		{"failures", b.measureFailures, 3 * time.Minute, 10 * time.Millisecond, true},
		{"sizes of statuses", b.measureStatuses, time.Minute, 10 * time.Millisecond, false},
		{"deletion", b.measureDeletion, 2 * time.Minute, 20 * time.Millisecond, true},
	}
}

// measureSize lets the cluster grow to a size and does all that is done at it. An operator that has ended is started
// again.
func (b *bench) measureSize(ctx context.Context, size content) {
	b.content, b.writesPerNamespace = size, objectsPerNamespace+1
	isGreatest := int(size) == slices.Max(b.options.sizes)
	for _, t := range b.tasks() {
		if t.last && !isGreatest {
			continue
		}
		limit := t.limit + time.Duration(size)*t.perNamespace
		exceeded := fmt.Errorf("it takes longer than the limit of %s", limit)
		limited, cancel := context.WithTimeoutCause(ctx, limit, exceeded)
		b.step(limited, t.name, func(ctx context.Context) error {
			return errors.Join(b.reviveOperator(ctx), t.run(ctx))
		})
		cancel()
	}
}

// step runs a step and records how long it took, and its failure.
func (b *bench) step(ctx context.Context, name string, run func(context.Context) error) {
	if ctx.Err() != nil {
		return
	}
	start := time.Now()
	end := b.progress.begin(fmt.Sprintf("%d namespaces: %s", b.content, name))
	err := run(ctx)
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	end()
	b.report.Steps = append(b.report.Steps, step{int(b.content), name, time.Since(start).Seconds()})
	if err != nil {
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		b.report.Failures = append(b.report.Failures, failure{int(b.content), name, text})
		b.progress.note("FAILED: %s: %s", name, text)
	}
}

// printRequests prints the requests of a step, to explain its figures.
func (b *bench) printRequests(step string, work measure.Work) {
	b.progress.note("requests of the %s: %v", step, work.Requests)
}

// add adds a figure of the current size.
func (b *bench) add(of measurement, value float64) { b.report.add(of, int(b.content), value, nil) }

// compare adds a figure of the current size, and the floor's.
func (b *bench) compare(of measurement, value, floor float64) {
	b.report.add(of, int(b.content), value, &floor)
}

func (b *bench) operatorKubeconfig() string { return filepath.Join(b.dir, "operator.kubeconfig") }
