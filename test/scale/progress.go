package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// progressInterval is the time between two lines about a step.
const progressInterval = 3 * time.Second

// progress prints what is being done, as long as it is being done.
type progress struct {
	out     io.Writer
	started time.Time

	// mu guards out, too: lines appear while a step runs.
	mu   sync.Mutex
	what string
	// done and total count what the current part of a step does. Without a total, only the time is printed.
	done, total atomic.Int64
}

// begin starts a step. The returned function ends it.
func (p *progress) begin(what string) (end func()) {
	p.part(what, 0)
	ended := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				p.print()
			}
		}
	})
	return func() {
		close(ended)
		wait.Wait()
	}
}

// part names what the step does from now on, and how often.
func (p *progress) part(what string, total int) {
	p.mu.Lock()
	p.what = what
	p.done.Store(0)
	p.total.Store(int64(total))
	p.mu.Unlock()
	p.print()
}

// note prints a line that remains of interest.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) print() {
	p.mu.Lock()
	defer p.mu.Unlock()
	count := ""
	if total := p.total.Load(); total > 0 {
		count = fmt.Sprintf(": %d of %d", p.done.Load(), total)
	}
	fmt.Fprintf(p.out, "%6s  %s%s\n", time.Since(p.started).Round(time.Second), p.what, count)
}
