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

// scenario is work of administrators, in three parts. Faults happen only during the second.
type scenario struct {
	name             string
	before, do, then func(*run)
	// until returns what has not happened yet after do, if statuses alone do not show it.
	until func(context.Context, *run) []string
	// observe starts an observation when before is complete. The returned function ends it and returns the problems.
	observe func(*run) func() []string
	// check returns further problems of the final state.
	check func(*run) []string
	// deletes are parts of the names of populated objects that the operator may delete; nil means none.
	deletes []string
	// drifts means that others change declared objects, so that drift is reported or corrected.
	drifts bool
	// unlike means that the final state is not determined by the scenario, so that it is not compared with an
	// undisturbed run's.
	unlike bool
	// slow scenarios are tried only without a fault.
	slow bool
	// leaderless is what administrators do besides, after the leader is stopped or suspended and before another replica
	// takes over.
	leaderless func(*run)
	// own are the only faults that the scenario is tried under; nil means all, and more.
	own, more []fault
	// ofSync means that the faults happen to nstpl-sync, and not to the operator.
	ofSync bool
}

// trial is a scenario under a fault.
type trial struct {
	scenario
	fault      fault
	policy     v1alpha1.DriftPolicy
	namespaces int
	seed       uint64
}

func (t trial) String() string {
	name := t.fault.name
	if name == "" {
		name = "none"
	}
	return fmt.Sprintf("%s/%s/%s", t.scenario.name, name, t.policy)
}

// result is the result of a trial.
type result struct {
	failures []string
	// writes is the number of the operator's writes while the scenario acted, and injected the number of faults.
	writes, injected int
	took             time.Duration
}

// baselines has the final states of undisturbed runs, which are run when they are needed. It is safe for concurrent
// use.
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

// of returns the expected final state of a trial and the result of the undisturbed run. The state is nil if the trial
// itself is undisturbed.
func (b *baselines) of(c *testCluster, t trial) (state, result) {
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
		known.state, known.result = c.undisturbed(undisturbed)
	})
	return known.state, known.result
}

// undisturbed runs a trial without a fault.
func (c *testCluster) undisturbed(t trial) (state, result) {
	r := c.newRun(t)
	result := r.conduct(nil)
	end, err := r.state(c.ctx)
	if err = errors.Join(err, r.cleanUp()); err != nil {
		result.failures = append(result.failures, err.Error())
	}
	return end, result
}

func (c *testCluster) newRun(t trial) *run {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	from, err := c.audit.Now()
	set := c.operator
	if t.ofSync {
		set = c.sync
	}
	return &run{
		testCluster: c, replicaSet: set, trial: t, id: fmt.Sprintf("r%04d", c.runs), from: from, err: err,
		templates: map[string][]*unstructured.Unstructured{},
	}
}

// try runs a trial and returns its result.
func (c *testCluster) try(t trial, b *baselines) result {
	var want state
	if t.fault.name != "" && !t.unlike {
		var undisturbed result
		if want, undisturbed = b.of(c, t); len(undisturbed.failures) > 0 {
			return result{failures: append([]string{"without any fault"}, undisturbed.failures...)}
		}
	}
	r := c.newRun(t)
	came := r.conduct(want)
	if err := r.cleanUp(); err != nil {
		came.failures = append(came.failures, err.Error())
	}
	return came
}

// conduct runs the parts of the scenario.
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
	done.failures = append(done.failures, r.writesWhenIdle()...)
	done.failures = append(done.failures, seen()...)
	done.failures = append(done.failures, r.forbiddenDeletions()...)
	done.failures = append(done.failures, r.falseDriftEvents()...)
	done.failures = append(done.failures, r.suspendedWrites...)
	if r.check != nil && r.err == nil {
		done.failures = append(done.failures, r.check(r)...)
	}
	for _, err := range r.drainProblems() {
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

// longest is the longest time for which a fault continues. Administrators cannot do everything while the operator does
// not answer.
const longest = 10 * time.Second

// disturb has the scenario act under the fault. It returns when the fault is over, all programs run again and all
// requests have arrived.
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
		if r.fault.during != handover { // handover waits for the work of administrators
			defer time.AfterFunc(longest, over).Stop()
		}
		r.do(r)
		pause(r.ctx, r.fault.lasts)
		over()
	} else {
		r.do(r)
		r.waitAction(leader)
		end()
		r.disarm()
	}
	r.waitUntilRight("writes are under way", settleTimeout, func(context.Context) []string {
		if r.hasWritesInFlight() {
			return []string{"they have not arrived"}
		}
		return nil
	})
	writes, injected := r.counted()
	return result{writes: writes, injected: injected}
}

// waitAction waits until the action has happened to the leader, or until the leader has nothing left to write.
func (r *run) waitAction(leader *replica) {
	quiet := 0
	last := -1
	for leader.proxy.pendingAction() != nothing && quiet < 10 && r.ctx.Err() == nil && r.err == nil {
		pause(r.ctx, 100*time.Millisecond)
		writes, _ := r.counted()
		if quiet++; writes != last || len(r.problems(r.ctx, nil)) > 0 {
			quiet = 0
		}
		if last = writes; time.Since(r.begin) > settleTimeout {
			return
		}
	}
	if r.fault.do == suspend && leader.proxy.pendingAction() == nothing {
		r.actLeaderless()
		r.waitOtherLeader(leader)
		pause(r.ctx, r.fault.lasts)
		r.resume(leader)
	}
}

func (r *run) actLeaderless() {
	if r.leaderless != nil {
		r.leaderless(r)
	}
}

// waitOtherLeader waits until another replica than the former leader leads.
func (r *run) waitOtherLeader(former *replica) {
	r.waitUntilRight("the other replica does not lead", settleTimeout, func(context.Context) []string {
		if now, _ := r.leader(); now == former {
			return []string{"it does not"}
		}
		return nil
	})
}

// inFlight is the number of writes of a suspended leader that may still arrive, because it had sent them before.
const inFlight = 16

// resume resumes a leader that was suspended until another one took over. It must end, and write nothing more.
func (r *run) resume(leader *replica) {
	former := leader.current()
	before, _ := leader.proxy.counted()
	r.noteProblem(former.Signal(syscall.SIGCONT)) // it may have ended already
	if r.err != nil {
		return
	}
	select {
	case <-former.Exited:
	case <-time.After(settleTimeout):
		r.fail(errors.New("a leader that has lost its lease did not end"))
	}
	if after, _ := leader.proxy.counted(); after-before > inFlight {
		r.suspendedWrites = append(r.suspendedWrites,
			fmt.Sprintf("a leader that was suspended made %d writes after its lease had run out", after-before))
	}
}

// start begins an event, and returns a function that ends it.
func (r *run) start(e event) (end func()) {
	switch e {
	case down:
		for _, replica := range r.replicas {
			replica.preventStart()
		}
		return func() {
			for _, replica := range r.replicas {
				r.noteProblem(replica.allowStart())
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
			r.noteProblem(leader.stop())
			r.actLeaderless()
			r.waitOtherLeader(leader)
			r.noteProblem(leader.allowStart())
		}
	case gitFails:
		r.gitFails.Store(true)
		return func() { r.gitFails.Store(false) }
	case "":
	}
	return func() {}
}

// settle waits until there are no problems. Without an expected state, the run's own becomes the expected one.
func (r *run) settle(when string, want state) {
	r.waitUntilRight(when, settleTimeout, func(ctx context.Context) []string {
		wrong := r.problems(ctx, want)
		if r.until != nil && !r.begin.IsZero() {
			wrong = append(wrong, r.until(ctx, r)...)
		}
		return wrong
	})
}

// report describes the failures of a trial, with a command that repeats it.
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
