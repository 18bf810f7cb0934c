package main

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// fault is what goes wrong between the replicas of a program and the API server. The zero value changes nothing.
type fault struct {
	name string

	// At write number at, counted from 1, the action do happens: before the write is forwarded, or after it was, in
	// which case its answer is lost.
	at    int
	do    action
	after bool

	// A write whose resource and method match is answered with a failure, with a probability of chance, instead of
	// being forwarded, or after it was.
	chance   float64
	answer   int    // 429, 500, 503, or reset
	writesOf string // a resource; empty means all
	methods  string // such as "PATCH POST"; empty means all
	// late is the delay of such a write, which is forwarded even if its sender has ended meanwhile.
	late time.Duration

	// refused is a resource: all requests for it, including lists and watches, are answered with 503.
	refused string
	// hung is a resource: its lists and watches are never answered.
	hung string

	// lateDeletions is the delay of the answers to deletions.
	lateDeletions time.Duration
	// lateWatches is the delay of all events of watches of the resource watchesOf; an empty watchesOf means all.
	lateWatches time.Duration
	watchesOf   string

	// cutWatches is the time after which watches are ended. Their next attempts are answered with 410 with a
	// probability of goneWatches.
	cutWatches  time.Duration
	goneWatches float64
	// cut resets all connections.
	cut bool

	// lasts is the time for which the fault continues after the scenario has acted. An action at a write ends when it
	// is done.
	lasts time.Duration
	// standby limits the fault to the replica that does not lead.
	standby bool
	// during is an event that happens while the scenario acts, in addition to the proxy's faults.
	during event
}

// action is what happens to the program or the control plane at a write.
type action int

const (
	nothing action = iota
	// kill kills the program. suspend suspends it until another replica leads.
	kill
	suspend
	// crashAPIServer and crashEtcd kill a program of the control plane, and start it again.
	crashAPIServer
	crashEtcd
)

// reset stands for an answer that is never sent, because the connection is reset.
const reset = -1

// event is something that happens to the replicas apart from the proxy's faults.
type event string

const (
	// down stops all replicas while the scenario acts.
	down event = "down"
	// restarted kills all replicas when the fault has begun.
	restarted event = "restarted"
	// handover stops the leader as Kubernetes would, when it has nothing left to do.
	handover event = "handover"
	// gitFails has the Git server answer 503.
	gitFails event = "git fails"
)

// decision is what happens to one request.
type decision struct {
	// do happens before the request is forwarded or, with after, afterwards; then its answer is lost.
	do    action
	after bool
	// answer, unless it is zero, is sent instead of forwarding the request or, with after, after forwarding it.
	answer int
	// hang delays the answer until the fault is over.
	hang bool
	// late delays the request, and lateAnswer the answer.
	late, lateAnswer time.Duration
	// ends is the time after which a watch is ended; zero means never.
	ends time.Duration
}

// injector decides which requests a fault affects. It is safe for concurrent use by several proxies.
type injector struct {
	mu       sync.Mutex
	fault    fault
	random   *rand.Rand
	writes   int
	injected int
	done     bool
	over     chan struct{} // closed when the fault is over
}

func newInjector() *injector {
	inj := &injector{}
	inj.arm(fault{}, 0)
	return inj
}

// arm begins a fault, and resets the count of writes.
func (inj *injector) arm(f fault, seed uint64) {
	inj.mu.Lock()
	defer inj.mu.Unlock()
	if inj.over != nil {
		close(inj.over)
	}
	inj.fault, inj.random, inj.over = f, rand.New(rand.NewPCG(seed, 0)), make(chan struct{})
	inj.writes, inj.injected, inj.done = 0, 0, false
}

// disarm ends the fault. Writes are still counted.
func (inj *injector) disarm() {
	inj.mu.Lock()
	defer inj.mu.Unlock()
	close(inj.over)
	inj.fault, inj.over = fault{}, make(chan struct{})
}

// counted returns the number of writes since arm, and the number of injected faults.
func (inj *injector) counted() (writes, injected int) {
	inj.mu.Lock()
	defer inj.mu.Unlock()
	return inj.writes, inj.injected
}

// pendingAction returns the action that has not happened yet.
func (inj *injector) pendingAction() action {
	inj.mu.Lock()
	defer inj.mu.Unlock()
	if inj.done {
		return nothing
	}
	return inj.fault.do
}

// current returns the fault, and a channel that is closed when it is over.
func (inj *injector) current() (fault, <-chan struct{}) {
	inj.mu.Lock()
	defer inj.mu.Unlock()
	return inj.fault, inj.over
}

// decide returns what happens to a request.
func (inj *injector) decide(r request) decision {
	inj.mu.Lock()
	defer inj.mu.Unlock()
	if r.isWrite() {
		inj.writes++
	}
	v := inj.decisionOfWrite(r)
	if v != (decision{}) {
		inj.injected++
	}
	return v
}

func (inj *injector) decisionOfWrite(r request) decision {
	f := inj.fault
	switch {
	case r.resource == "" || r.resource == "leases" && !f.cut:
		return decision{}
	case f.refused == r.resource:
		return decision{answer: http.StatusServiceUnavailable}
	case f.hung == r.resource && r.method == http.MethodGet:
		return decision{hang: true}
	case r.watch:
		return inj.decisionOfWatch()
	case !r.isWrite():
		return decision{}
	case f.do != nothing && f.at == inj.writes && !inj.done:
		inj.done = true
		return decision{do: f.do, after: f.after}
	}
	v := decision{}
	if f.concerns(r) {
		v.late = f.late
	}
	if r.method == http.MethodDelete {
		v.lateAnswer = f.lateDeletions
	}
	if f.answer != 0 && f.concerns(r) && inj.random.Float64() < f.chance {
		v.answer, v.after = f.answer, f.after
	}
	return v
}

func (inj *injector) decisionOfWatch() decision {
	if inj.fault.goneWatches > 0 && inj.random.Float64() < inj.fault.goneWatches {
		return decision{answer: http.StatusGone}
	}
	return decision{ends: inj.fault.cutWatches}
}

func (f fault) concerns(write request) bool {
	return (f.writesOf == "" || f.writesOf == write.resource) &&
		(f.methods == "" || strings.Contains(f.methods, write.method))
}

// delays returns the delay of a watch's events.
func (f fault) delays(watch request) time.Duration {
	if f.watchesOf == "" || f.watchesOf == watch.resource {
		return f.lateWatches
	}
	return 0
}
