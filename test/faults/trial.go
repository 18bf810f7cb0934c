package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// scenario is something that administrators do, in three parts. The first and the last are left in peace.
type scenario struct {
	name             string
	before, do, then func(*run)
	// until returns what has still to happen after do, where statuses alone don't tell.
	until func(context.Context, *run) []string
	// observe begins to look at something once before has settled. What it returns ends that, and returns what was
	// wrong.
	observe func(*run) func() []string
	// check looks for what else must be true in the end.
	check func(*run) []string
	// deletes are parts of the names of what the operator may delete, of its own; nil means nothing.
	deletes []string
	// drifts says that others change what is declared, so that drift is reported or corrected.
	drifts bool
	// unlike says that the end depends on more than what administrators do, so that it is not compared with an
	// undisturbed run's.
	unlike bool
	// slow scenarios are tried only without a fault.
	slow bool
	// own are the only faults that the scenario is tried under; nil means all.
	own []fault
}

// trial is a scenario under a fault.
type trial struct {
	scenario
	fault      fault
	policy     v1alpha1.DriftPolicy
	namespaces int
	seed       uint64
	// idle is how long nothing may be written in the end.
	idle time.Duration
}

func (t trial) String() string {
	name := t.fault.name
	if name == "" {
		name = "none"
	}
	return fmt.Sprintf("%s/%s/%s", t.scenario.name, name, t.policy)
}

// result is what came of a trial.
type result struct {
	failures []string
	// writes is how many the operator made while the scenario acted, and injected how many faults there were.
	writes, injected int
	took             time.Duration
}

// baselines are the states after undisturbed runs, which are made when they are needed. They may be used by several
// worlds at once.
type baselines struct {
	mu    sync.Mutex
	known map[string]*baseline
}

type baseline struct {
	once   sync.Once
	state  state
	result result
}

func newBaselines() *baselines {
	return &baselines{known: map[string]*baseline{}}
}

// of returns the state that a trial is to end in, or nil if the trial is itself undisturbed, and how the undisturbed
// one went.
func (b *baselines) of(w *world, t trial) (state, result) {
	b.mu.Lock()
	key := fmt.Sprintf("%s/%s/%d", t.scenario.name, t.policy, t.namespaces)
	if b.known[key] == nil {
		b.known[key] = &baseline{}
	}
	known := b.known[key]
	b.mu.Unlock()
	known.once.Do(func() {
		undisturbed := t
		undisturbed.fault = fault{}
		known.state, known.result = w.undisturbed(undisturbed)
	})
	return known.state, known.result
}

// undisturbed makes a run without a fault.
func (w *world) undisturbed(t trial) (state, result) {
	r := w.newRun(t)
	result := r.conduct(nil)
	end, err := r.state(w.ctx)
	if err != nil {
		result.failures = append(result.failures, err.Error())
	}
	return end, result
}

func (w *world) newRun(t trial) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs++
	from, err := w.audit.Now()
	return &run{
		world: w, trial: t, id: fmt.Sprintf("r%04d", w.runs), from: from, err: err,
		templates: map[string][]*unstructured.Unstructured{},
	}
}

// try makes a run with a fault and returns what was wrong.
func (w *world) try(t trial, b *baselines) result {
	if t.fault.name == "" || t.unlike {
		return w.newRun(t).conduct(nil)
	}
	want, undisturbed := b.of(w, t)
	if len(undisturbed.failures) > 0 {
		return result{failures: append([]string{"without any fault"}, undisturbed.failures...)}
	}
	return w.newRun(t).conduct(want)
}

// conduct goes through the parts of the run.
func (r *run) conduct(want state) result {
	begin := time.Now()
	r.arm(fault{}, r.seed)
	if r.before != nil {
		r.before(r)
		r.settle("before the fault", nil)
	}
	seen := func() []string { return nil }
	if r.observe != nil {
		seen = r.observe(r)
	}
	done := r.disturb()
	if r.then != nil {
		r.settle("after the fault", nil)
		r.then(r)
	}
	r.settle("in the end", want)
	done.failures = append(done.failures, r.idleness()...)
	done.failures = append(done.failures, seen()...)
	done.failures = append(done.failures, r.deletions()...)
	done.failures = append(done.failures, r.falseDrift()...)
	done.failures = append(done.failures, r.zombie...)
	if r.check != nil && r.err == nil {
		done.failures = append(done.failures, r.check(r)...)
	}
	for _, err := range r.complained() {
		r.fail(err)
	}
	if r.err != nil {
		done.failures = append([]string{r.err.Error()}, done.failures...)
	}
	for i, failure := range done.failures {
		done.failures[i] = r.id + ": " + failure
	}
	done.took = time.Since(begin)
	return done
}

// longest is how long a fault goes on at most. Administrators can't do everything while the operator does not answer.
const longest = 10 * time.Second

// disturb has the scenario act under the fault, and returns when the fault is over, everything runs again and all that
// was sent has arrived.
func (r *run) disturb() result {
	r.begin = time.Now()
	leader, _ := r.leader()
	r.arm(r.fault, r.seed)
	end := r.start(r.fault.during)
	if r.fault.do == nothing {
		over := sync.OnceFunc(func() {
			end()
			r.disarm()
		})
		if r.fault.during != handover { // which waits for what administrators do
			defer time.AfterFunc(longest, over).Stop()
		}
		r.do(r)
		pause(r.ctx, r.fault.lasts)
		over()
	} else {
		r.do(r)
		r.awaitDeed(leader)
		end()
		r.disarm()
	}
	r.await("writes are under way", patience, func(context.Context) []string {
		if r.underWay() {
			return []string{"they have not arrived"}
		}
		return nil
	})
	writes, injected := r.counted()
	return result{writes: writes, injected: injected}
}

// awaitDeed returns when the one who led was killed or stopped at its write, or has no more to write.
func (r *run) awaitDeed(leader *replica) {
	quiet := 0
	last := -1
	for leader.proxy.pending() != nothing && quiet < 10 && r.ctx.Err() == nil && r.err == nil {
		pause(r.ctx, 100*time.Millisecond)
		writes, _ := r.counted()
		if quiet++; writes != last || len(r.wrong(r.ctx, nil)) > 0 {
			quiet = 0
		}
		if last = writes; time.Since(r.begin) > patience {
			return
		}
	}
	if r.fault.do == suspend && leader.proxy.pending() == nothing {
		r.awaitAnother(leader)
		pause(r.ctx, r.fault.lasts)
		r.resume(leader)
	}
}

// awaitAnother waits until another replica than the former leader leads.
func (r *run) awaitAnother(former *replica) {
	r.await("the other replica is to lead", patience, func(context.Context) []string {
		if now, _ := r.leader(); now == former {
			return []string{"it does not"}
		}
		return nil
	})
}

// inFlight is how many writes of a leader that was suspended may still arrive: those that it had decided upon before.
const inFlight = 16

// resume has a leader go on that was suspended until another one took over. It must end, and write nothing more.
func (r *run) resume(leader *replica) {
	former, before := leader.current(), leader.proxy.writes.Load()
	r.complain(former.Signal(syscall.SIGCONT)) // whatever happened before
	if r.err != nil {
		return
	}
	select {
	case <-former.Exited:
	case <-time.After(patience):
		r.fail(errors.New("a leader that has lost its lease does not end"))
	}
	if late := leader.proxy.writes.Load() - before; late > inFlight {
		r.zombie = append(r.zombie,
			fmt.Sprintf("a leader that was suspended made %d writes after its lease had run out", late))
	}
}

// start has an event begin, and returns what ends it.
func (r *run) start(e event) (end func()) {
	switch e {
	case down:
		for _, replica := range r.replicas {
			replica.hold()
		}
		return func() {
			for _, replica := range r.replicas {
				r.complain(replica.letGo())
			}
		}
	case restarted:
		for _, replica := range r.replicas {
			replica.kill()
		}
	case handover:
		return func() {
			r.settle("before the leader ends", nil)
			leader, _ := r.leader()
			r.complain(leader.stop())
			r.awaitAnother(leader)
			r.complain(leader.letGo())
		}
	case "":
	}
	return func() {}
}

// settle waits until nothing is wrong any more. Without a state to compare with, the run's own is as it should be.
func (r *run) settle(when string, want state) {
	r.await(when, patience, func(ctx context.Context) []string {
		wrong := r.wrong(ctx, want)
		if r.until != nil && !r.begin.IsZero() {
			wrong = append(wrong, r.until(ctx, r)...)
		}
		return wrong
	})
}

// report puts what failed in a trial into words, with what repeats it.
func (t trial) report(replicas int, failures []string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "FAILED %s replicas=%d seed=%d\n", t, replicas, t.seed)
	for _, failure := range failures {
		fmt.Fprintf(&text, "\t%s\n", failure)
	}
	fmt.Fprintf(&text, "\trepeat: go run ./test/faults -run '^%s$' -replicas %d -seed %d -namespaces %d -runs 1\n", t,
		replicas, t.seed, t.namespaces)
	return text.String()
}
