package population

import "sync"

// passes knows which passes over namespaces are running. A pass writes what the templates declared when it began. The
// zero value has none. It is safe for concurrent use.
type passes struct {
	mu sync.Mutex
	// last is the number of the pass that began last.
	last uint64
	// running has the numbers of the passes that have not ended.
	running map[uint64]struct{}
}

// begin begins a pass, and returns a function that ends it.
func (p *passes) begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		p.running = map[uint64]struct{}{}
	}
	p.last++
	number := p.last
	p.running[number] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.running, number)
	}
}

// begun returns the number of the pass that began last.
func (p *passes) begun() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// haveEnded reports whether all passes up to a number have ended.
func (p *passes) haveEnded(number uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for running := range p.running {
		if running <= number {
			return false
		}
	}
	return true
}
