// Command faults runs scenarios of administrators' work under faults such as crashes, lost answers, late caches and two
// replicas, and checks that the final state is correct. See the README beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// plan selects the trials to run.
type plan struct {
	runs       int
	seed       uint64
	limit      time.Duration
	only       *regexp.Regexp
	replicas   []int
	policies   []string
	namespaces int
	programs   programs
}

func main() {
	p, err := read(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctrl.SetLogger(zap.New()) // controller-runtime complains if clients have no logger
		err = p.run(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// read parses the command line.
func read(arguments []string) (plan, error) {
	var p plan
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.IntVar(&p.runs, "runs", 0,
		"number of trials for each number of replicas; 0 runs each trial once")
	flags.Uint64Var(&p.seed, "seed", 0,
		"seed of the order of trials and of random faults; 0 chooses a random seed")
	flags.DurationVar(&p.limit, "for", 0, "time after which no further trial begins; 0 means no limit")
	only := flags.String("run", "",
		"regular expression that selects trials by SCENARIO/FAULT/POLICY")
	replicas := flags.String("replicas", "1,2", "numbers of operators to run: 1, 2, or both in turn")
	policies := flags.String("policy", "Correct,Report", "drift policies of templates")
	flags.IntVar(&p.namespaces, "namespaces", 3, "number of namespaces in a trial")
	if err := flags.Parse(arguments); err != nil {
		return p, err
	}
	var err error
	if p.only, err = regexp.Compile(*only); err != nil {
		return p, err
	}
	for text := range strings.SplitSeq(*replicas, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 2 {
			return p, fmt.Errorf("-replicas is %q: it must be 1, 2 or 1,2", *replicas)
		}
		p.replicas = append(p.replicas, n)
	}
	p.policies = strings.Split(*policies, ",")
	if p.seed == 0 {
		p.seed = uint64(rand.Uint32())
	}
	return p, nil
}

// run runs the trials and prints their results.
func (p plan) run(out io.Writer) (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if p.limit > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, p.limit+5*time.Minute)
		defer end()
	}
	dir, err := os.MkdirTemp("", "nstpl-faults-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if p.programs, err = build(ctx, dir); err != nil {
		return err
	}
	results, known := newTable(out), newBaselines()
	errs := make([]error, len(p.replicas))
	var all sync.WaitGroup
	for i, replicas := range p.replicas {
		all.Go(func() { errs[i] = p.campaign(ctx, replicas, known, results) })
	}
	all.Wait()
	if failures := results.print(); failures > 0 {
		errs = append(errs, fmt.Errorf("%d trials failed", failures))
	}
	return errors.Join(errs...)
}

// trialsPerCluster is the number of trials after which a new control plane is started. The objects of earlier trials
// make the operator slower.
const trialsPerCluster = 60

// campaign runs the trials with a number of replicas.
func (p plan) campaign(ctx context.Context, replicas int, known *baselines, results *table) error {
	trials := p.trials(replicas)
	if len(trials) == 0 {
		return fmt.Errorf("no trial with %d replicas is called %s", replicas, p.only)
	}
	begin := time.Now()
	for len(trials) > 0 && ctx.Err() == nil && (p.limit == 0 || time.Since(begin) < p.limit) {
		some := trials[:min(trialsPerCluster, len(trials))]
		trials = trials[len(some):]
		if err := p.withCluster(ctx, replicas, func(c *testCluster) {
			for _, t := range some {
				if ctx.Err() != nil || p.limit > 0 && time.Since(begin) > p.limit {
					return
				}
				if came := c.try(t, known); ctx.Err() == nil {
					results.add(t, replicas, came)
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

func (p plan) withCluster(ctx context.Context, replicas int, do func(*testCluster)) error {
	c, err := newTestCluster(ctx, p.programs, replicas)
	if err != nil {
		return err
	}
	do(c)
	return c.stop()
}

// trials returns the selected trials, in the order of the seed.
func (p plan) trials(replicas int) []trial {
	random := rand.New(rand.NewPCG(p.seed, uint64(replicas)))
	var all []trial
	for _, t := range everything(replicas) {
		t.namespaces = p.namespaces
		for _, policy := range p.policies {
			t.policy = v1alpha1.DriftPolicy(policy)
			if p.only.MatchString(t.String()) {
				all = append(all, t)
			}
		}
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if p.runs == 0 || len(all) == 0 {
		p.runs = len(all)
	}
	var chosen []trial
	for i := range p.runs {
		t := all[i%len(all)]
		t.seed = p.seed + uint64(i/len(all))
		chosen = append(chosen, t)
	}
	return chosen
}

// everything returns each scenario with each fault.
func everything(replicas int) []trial {
	var all []trial
	with := append(append([]fault{{}}, faults()...), killed(12)...)
	if replicas > 1 {
		with = append(with, faultsOfTwo()...)
	}
	for _, s := range scenarios() {
		for _, f := range with {
			if s.meets(f) {
				all = append(all, trial{scenario: s, fault: f})
			}
		}
		for _, f := range slices.Concat(s.own, s.more) {
			if replicas > 1 || f.do != suspend {
				all = append(all, trial{scenario: s, fault: f})
			}
		}
	}
	return all
}

// meets reports whether a scenario is tried under a fault.
func (s scenario) meets(f fault) bool {
	return f.name == "" || !s.slow && s.own == nil
}
