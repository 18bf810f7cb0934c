package main

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// fault says what goes wrong between the operator and the API server. The zero value lets everything pass.
type fault struct {
	name string

	// At write number at, counted from 1, do is done: before the write is passed on, or after it was, and its answer is
	// lost.
	at    int
	do    deed
	after bool

	// A write whose resource and method are as named is answered with a failure by chance, instead of being passed on,
	// or after.
	chance   float64
	answer   int    // 429, 500, 503, or reset
	writesOf string // a resource; empty means all
	methods  string // such as "PATCH POST"; empty means all
	// late is how long such a write takes to arrive, even if its sender has died meanwhile.
	late time.Duration

	// refused is a resource all of whose requests, lists and watches included, are answered with 503.
	refused string
	// hung is a resource whose lists and watches are never answered.
	hung string

	// lateDeletions is how long the answers to deletions take.
	lateDeletions time.Duration
	// lateWatches is how long whatever a watch of watchesOf tells takes; an empty watchesOf means all.
	lateWatches time.Duration
	watchesOf   string

	// cutWatches ends all watches that long after they began, and goneWatches then answers their next tries with 410 by
	// that chance.
	cutWatches  time.Duration
	goneWatches float64
	// cut resets all connections.
	cut bool

	// lasts is how long the fault goes on after the scenario has acted. What is done at a write is over once it is
	// done.
	lasts time.Duration
	// standby has only the replica that does not lead meet the fault.
	standby bool
	// during is done while the scenario acts, beside what the proxy does.
	during event
}

// deed is what happens to the operator at a write.
type deed int

const (
	nothing deed = iota
	// kill kills the operator, and suspend stops it for a while.
	kill
	suspend
	// crashAPIServer and crashEtcd kill a program of the control plane, and start it again.
	crashAPIServer
	crashEtcd
)

// reset is the answer that is none: the connection ends.
const reset = -1

// event is what happens beside the proxy.
type event string

const (
	// down keeps all operators stopped while the scenario acts.
	down event = "down"
	// restarted kills all operators once the fault is there.
	restarted event = "restarted"
	// handover ends the leader as Kubernetes would, when it has done what there is to do.
	handover event = "handover"
)

// verdict says what becomes of one request.
type verdict struct {
	// do is done before the request is passed on, or after it was; then its answer is lost.
	do    deed
	after bool
	// answer, unless it is zero, is given instead of passing the request on; with after, it is given once that was
	// done.
	answer int
	// hang answers nothing until the fault is over.
	hang bool
	// late holds the request, and lateAnswer the answer.
	late, lateAnswer time.Duration
	// ends is when a watch is cut; zero means never.
	ends time.Duration
}

// judge decides by a fault what becomes of requests. It may be used by several proxies at once.
type judge struct {
	mu       sync.Mutex
	fault    fault
	random   *rand.Rand
	writes   int
	injected int
	done     bool
	over     chan struct{} // closed when the fault is
}

func newJudge() *judge {
	j := &judge{}
	j.arm(fault{}, 0)
	return j
}

// arm has a fault happen from now on. Writes are counted anew.
func (j *judge) arm(f fault, seed uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over != nil {
		close(j.over)
	}
	j.fault, j.random, j.over = f, rand.New(rand.NewPCG(seed, 0)), make(chan struct{})
	j.writes, j.injected, j.done = 0, 0, false
}

// disarm ends the fault. Writes are still counted.
func (j *judge) disarm() {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.over)
	j.fault, j.over = fault{}, make(chan struct{})
}

// counted returns how many writes there were since the judge was armed, and how many faults it has injected.
func (j *judge) counted() (writes, injected int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writes, j.injected
}

// pending returns the deed that waits for its write.
func (j *judge) pending() deed {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.done {
		return nothing
	}
	return j.fault.do
}

// now returns the fault of this moment, and what is closed when it is over.
func (j *judge) now() (fault, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fault, j.over
}

// decide returns what becomes of a request.
func (j *judge) decide(r request) verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.isWrite() {
		j.writes++
	}
	v := j.verdict(r)
	if v != (verdict{}) {
		j.injected++
	}
	return v
}

func (j *judge) verdict(r request) verdict {
	f := j.fault
	switch {
	case r.resource == "" || r.resource == "leases" && !f.cut:
		return verdict{}
	case f.refused == r.resource:
		return verdict{answer: http.StatusServiceUnavailable}
	case f.hung == r.resource && r.method == http.MethodGet:
		return verdict{hang: true}
	case r.watch:
		return j.verdictOfWatch()
	case !r.isWrite():
		return verdict{}
	case f.do != nothing && f.at == j.writes && !j.done:
		j.done = true
		return verdict{do: f.do, after: f.after}
	}
	v := verdict{}
	if f.concerns(r) {
		v.late = f.late
	}
	if r.method == http.MethodDelete {
		v.lateAnswer = f.lateDeletions
	}
	if f.answer != 0 && f.concerns(r) && j.random.Float64() < f.chance {
		v.answer, v.after = f.answer, f.after
	}
	return v
}

func (j *judge) verdictOfWatch() verdict {
	if j.fault.goneWatches > 0 && j.random.Float64() < j.fault.goneWatches {
		return verdict{answer: http.StatusGone}
	}
	return verdict{ends: j.fault.cutWatches}
}

func (f fault) concerns(write request) bool {
	return (f.writesOf == "" || f.writesOf == write.resource) &&
		(f.methods == "" || strings.Contains(f.methods, write.method))
}

// delays returns how long what a watch tells takes.
func (f fault) delays(watch request) time.Duration {
	if f.watchesOf == "" || f.watchesOf == watch.resource {
		return f.lateWatches
	}
	return 0
}
