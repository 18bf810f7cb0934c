package admission

import (
	"slices"
	"sync"
)

// subscribers want to know when something changed: a watch of their own might tell them before it is known here.
type subscribers struct {
	mu  sync.Mutex
	all []func()
}

// add has do called now and whenever something changed.
func (s *subscribers) add(do func()) {
	s.mu.Lock()
	s.all = append(s.all, do)
	s.mu.Unlock()
	do()
}

// tell calls them.
func (s *subscribers) tell() {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, do := range all {
		do()
	}
}
