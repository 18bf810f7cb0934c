package repository

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
)

// scopes says which objects concern the trees of which PolicyRepositories, so that all other changes in the cluster
// cost nothing. A PolicyRepository has a scope as soon as the objects of its tree were read once.
type scopes struct {
	mu sync.RWMutex
	// all has the scopes by the UID of the PolicyRepository.
	all map[types.UID]scope
}

// scope is that of the PolicyRepository with a name.
type scope struct {
	inventory.Scope
	repository string
}

func (s *scopes) set(repository *v1alpha1.PolicyRepository, tree *vetted, rec *record) {
	of := inventory.NewScope(tree.root, tree.declared, maps.Clone(rec.created), maps.Clone(rec.pending))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[types.UID]scope{}
	}
	s.all[repository.UID] = scope{of, repository.Name}
}

// of returns the scope of a PolicyRepository, which is empty if it is unknown.
func (s *scopes) of(repository types.UID) inventory.Scope {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.all[repository].Scope
}

// remove forgets the scope of a PolicyRepository.
func (s *scopes) remove(repository types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, repository)
}

// forget forgets the scopes of all PolicyRepositories but those with the given UIDs.
func (s *scopes) forget(exists map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.all, func(repository types.UID, _ scope) bool { return !exists[repository] })
}

// concernedBy returns the names of the PolicyRepositories that the change of an object concerns.
func (s *scopes) concernedBy(before, after *unstructured.Unstructured) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names []string
	for _, scope := range s.all {
		if scope.Concerns(before, after) {
			names = append(names, scope.repository)
		}
	}
	return names
}
