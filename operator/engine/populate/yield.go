package populate

import (
	"context"
	"sync"
	"time"
)

// maxWait is the longest time that a bulk write waits, so that a stream of new namespaces cannot stop a rollout.
const maxWait = 100 * time.Millisecond

// Yield makes bulk writes wait while urgent work is in progress. Both share a connection and an API server, so bulk
// writes that were sent before would delay the urgent ones.
type Yield struct {
	mu     sync.Mutex
	urgent int
	// idle is closed while no urgent work is in progress.
	idle chan struct{}
}

// NewYield returns a Yield without urgent work.
func NewYield() *Yield {
	y := &Yield{idle: make(chan struct{})}
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
		if y.urgent--; y.urgent == 0 {
			close(y.idle)
		}
	}
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
