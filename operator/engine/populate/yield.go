package populate

import (
	"context"
	"sync"
	"time"
)

const (
	// maxWait is the longest time that a bulk write waits for urgent work, so that a stream of new namespaces cannot
	// stop a rollout.
	maxWait = 100 * time.Millisecond
	// maxQuick is how many bulk writes keep the processors of a small API server busy, and maxCalm how many are sent
	// while nothing urgent has happened for calm. With eight of them, rollouts took up to a third less time, and new
	// namespaces waited up to twice as long (make bench-scale).
	maxQuick = 2
	maxCalm  = 8
	calm     = 10 * time.Second
	// quick is how long a write is taken to need a processor. One that takes longer waits for something else, such as a
	// webhook, and does not keep others back.
	quick = 50 * time.Millisecond
)

// Yield makes bulk writes wait while urgent work is in progress, and sends few of them at a time. Both share a
// connection and an API server, so bulk writes that were sent before would delay the urgent ones, and the requests of
// users.
type Yield struct {
	mu     sync.Mutex
	urgent int
	// idle is closed while no urgent work is in progress.
	idle chan struct{}
	// calmFrom is when the last urgent work will have been long ago.
	calmFrom time.Time
	// few and many have an element for each bulk write that was sent less than quick ago and has no answer: soon after
	// urgent work, and later.
	few, many chan struct{}
}

// NewYield returns a Yield without urgent work.
func NewYield() *Yield {
	y := &Yield{idle: make(chan struct{}), few: make(chan struct{}, maxQuick), many: make(chan struct{}, maxCalm)}
	close(y.idle)
	return y
}

// Urgent marks the begin of urgent work. The caller calls done when the work is finished.
func (y *Yield) Urgent() (done func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.urgent == 0 {
		y.idle = make(chan struct{})
	}
	y.urgent++
	return func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.calmFrom = time.Now().Add(calm)
		if y.urgent--; y.urgent == 0 {
			close(y.idle)
		}
	}
}

// Bulk returns when a bulk write may be sent, or when ctx is done. The caller calls done when the write has its answer.
func (y *Yield) Bulk(ctx context.Context) (done func()) {
	y.Wait(ctx)
	sent := y.slots()
	select {
	case sent <- struct{}{}:
	case <-ctx.Done():
		return func() {}
	}
	answered := sync.OnceFunc(func() { <-sent })
	slow := time.AfterFunc(quick, answered)
	return func() {
		slow.Stop()
		answered()
	}
}

// slots returns the channel that limits the bulk writes at this time.
func (y *Yield) slots() chan struct{} {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.urgent == 0 && time.Now().After(y.calmFrom) {
		return y.many
	}
	return y.few
}

// Wait returns when no urgent work is in progress, after maxWait, or when ctx is done.
func (y *Yield) Wait(ctx context.Context) {
	y.mu.Lock()
	idle := y.idle
	y.mu.Unlock()
	select {
	case <-idle:
		return
	default:
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	case <-ctx.Done():
	}
}
