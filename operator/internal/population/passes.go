package population

import (
	"slices"
	"sync"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// passes knows which passes over namespaces are running. A pass writes what the templates declared when it began. The
// zero value has none. It is safe for concurrent use.
type passes struct {
	mu sync.Mutex
	// last is the number of the pass that began last.
	last uint64
	// running has the templates of the passes that have not ended, by number, and nil for passes that have yet to
	// select them.
	running map[uint64][]*v1alpha1.NamespaceTemplate
}

// begin begins a pass. Call selected with the templates that it applies, and end at its end.
func (p *passes) begin() (selected func([]*v1alpha1.NamespaceTemplate), end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		p.running = map[uint64][]*v1alpha1.NamespaceTemplate{}
	}
	p.last++
	number := p.last
	p.running[number] = nil
	selected = func(templates []*v1alpha1.NamespaceTemplate) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.running[number] = append([]*v1alpha1.NamespaceTemplate{}, templates...)
	}
	return selected, func() {
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

// haveEnded reports whether all passes up to a number have ended that may apply a template.
func (p *passes) haveEnded(number uint64, template string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	isIt := func(t *v1alpha1.NamespaceTemplate) bool { return t.Name == template }
	for running, templates := range p.running {
		if running <= number && (templates == nil || slices.ContainsFunc(templates, isIt)) {
			return false
		}
	}
	return true
}
