package populate

import (
	"context"
	"sync"
	"time"
)

// patience is how long a bulk write gives way at most, so that a stream of new namespaces can't stop a rollout.
const patience = 100 * time.Millisecond

// Yield makes bulk writes give way to urgent work: they share a connection and an API server, in which those that went
// before would be in the way.
type Yield struct {
	mu     sync.Mutex
	urgent int
	// clear is closed while nothing urgent is under way.
	clear chan struct{}
}

// NewYield returns a Yield with nothing under way.
func NewYield() *Yield {
	y := &Yield{clear: make(chan struct{})}
	close(y.clear)
	return y
}

// Urgent says that urgent work begins; the function that it returns says that it is done.
func (y *Yield) Urgent() (done func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.urgent == 0 {
		y.clear = make(chan struct{})
	}
	y.urgent++
	return func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		if y.urgent--; y.urgent == 0 {
			close(y.clear)
		}
	}
}

// Wait returns when nothing urgent is under way, or patience or ctx is at its end.
func (y *Yield) Wait(ctx context.Context) {
	y.mu.Lock()
	idle := y.clear
	y.mu.Unlock()
	select {
	case <-idle:
		return
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	case <-ctx.Done():
	}
}
