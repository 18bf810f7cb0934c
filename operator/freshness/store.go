package freshness

import (
	"iter"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Object is what a store compares of objects.
type Object interface {
	GetUID() types.UID
	GetResourceVersion() string
}

// Store has objects as the API server returned them after a write of this process, until a cache has them, too.
// Otherwise a controller would write again what it has just written, or would miss that it has to take back its last
// write: no event follows that would have it compare again. The resourceVersions of a kind grow across the objects that
// have a name one after the other, so an object that was deleted and created again needs no special treatment. The zero
// value is ready to use. It is safe for concurrent use.
type Store[K comparable, T Object] struct {
	mu      sync.Mutex
	written map[K]T
	// upTo is the resourceVersion up to which the cache is known to be complete, or empty.
	upTo string
}

// Written records an object after a write, unless the cache is known to have it. Answers may arrive in any order.
func (s *Store[K, T]) Written(key K, object T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, exists := s.written[key]
	if !s.isAhead(object, s.upTo) || exists && s.isAhead(last, object.GetResourceVersion()) {
		return
	}
	if s.written == nil {
		s.written = map[K]T{}
	}
	s.written[key] = object
}

func (*Store[K, T]) isAhead(written T, of string) bool {
	return Newer(written.GetResourceVersion(), of)
}

// Observed records that the cache has an object at a resourceVersion, and returns the write that it had not shown
// before, if there is one. A write that is newer remains.
func (s *Store[K, T]) Observed(key K, version string) (written T, isPending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	written, isPending = s.written[key]
	if isPending && !s.isAhead(written, version) {
		delete(s.written, key)
	}
	return written, isPending
}

// Deleted records that the cache has seen the end of an object. A write of another object of its name remains.
func (s *Store[K, T]) Deleted(key K, uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if written, exists := s.written[key]; exists && written.GetUID() == uid {
		delete(s.written, key)
	}
}

// UpTo records that the cache has everything up to a resourceVersion, as after a list or a bookmark, or nothing if the
// version is empty. The events of an informer do not say that: they deliver the objects of a list in any order. Its
// store does, since it is replaced by a list as a whole.
func (s *Store[K, T]) UpTo(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upTo = Newest(s.upTo, version)
}

// Latest returns the object of the cache, or the one after the last write if the cache is behind. The caller must not
// change it.
func (s *Store[K, T]) Latest(key K, cached T) T {
	if written, isPending := s.Observed(key, cached.GetResourceVersion()); isPending &&
		s.isAhead(written, cached.GetResourceVersion()) {
		return written
	}
	return cached
}

// Read returns the object that get reads from the cache, or the one after the last write if the cache is behind. Use it
// instead of Latest if another goroutine calls Observed: it looks for the write before get, since the cache may get the
// write while get runs, and the store forgets it then. The caller must not change the object.
func (s *Store[K, T]) Read(key K, get func() (T, error)) (T, error) {
	s.mu.Lock()
	written, isPending := s.written[key]
	s.mu.Unlock()
	cached, err := get()
	if err != nil {
		return cached, err
	}
	latest := s.Latest(key, cached)
	if isPending && s.isAhead(written, latest.GetResourceVersion()) {
		return written, nil
	}
	return latest, nil
}

// ReadAll is Read for all objects that list reads from the cache.
func (s *Store[K, T]) ReadAll(keyOf func(T) K, list func() ([]T, error)) ([]T, error) {
	s.mu.Lock()
	pending := maps.Clone(s.written)
	s.mu.Unlock()
	all, err := list()
	if err != nil {
		return nil, err
	}
	for i, cached := range all {
		latest := s.Latest(keyOf(cached), cached)
		if written, isPending := pending[keyOf(cached)]; isPending && s.isAhead(written, latest.GetResourceVersion()) {
			latest = written
		}
		all[i] = latest
	}
	return all, nil
}

// Unobserved returns the writes that the cache is not known to have. The loop must not call the store.
func (s *Store[K, T]) Unobserved() iter.Seq2[K, T] {
	return func(yield func(K, T) bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for key, written := range s.written {
			if !s.isAhead(written, s.upTo) {
				delete(s.written, key)
			} else if !yield(key, written) {
				return
			}
		}
	}
}
