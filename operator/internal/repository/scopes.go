package repository

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/engine/inventory"
)

// scopes says which objects concern the trees of which PolicyRepositories, so that all other changes in the cluster
// cost nothing. A PolicyRepository has a scope as soon as the objects of its tree were read once.
type scopes struct {
	mu  sync.RWMutex
	all map[string]inventory.Scope
}

// set sets the scope of a PolicyRepository.
func (s *scopes) set(repository string, tree *vetted, rec *record) {
	scope := inventory.NewScope(tree.root, tree.declared, maps.Clone(rec.created), maps.Clone(rec.pending))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]inventory.Scope{}
	}
	s.all[repository] = scope
}

// of returns the scope of a PolicyRepository, if it is known.
func (s *scopes) of(repository string) (scope inventory.Scope, isKnown bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	scope, isKnown = s.all[repository]
	return scope, isKnown
}

// remove forgets the scope of a PolicyRepository.
func (s *scopes) remove(repository string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, repository)
}

// forget forgets the scopes of all PolicyRepositories but those with the given names.
func (s *scopes) forget(exists map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(name string, _ inventory.Scope) bool { return !exists[name] })
}

// concernedBy returns the names of the PolicyRepositories that the change of an object concerns.
func (s *scopes) concernedBy(before, after *unstructured.Unstructured) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names []string
	for name, scope := range s.all {
		if scope.Concerns(before, after) {
			names = append(names, name)
		}
	}
	return names
}
