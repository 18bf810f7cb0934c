package sources

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// answerTime is how long templates wait for the first answer about a source.
const answerTime = 10 * time.Second

// Store follows the sources of templates. It is safe for concurrent use.
type Store struct {
	//nolint:containedctx // sources are followed longer than the calls last that start that
	ctx context.Context
	Options

	mu      sync.Mutex
	sources map[render.SourceRef]*source
}

// source is one source, and what is known about it.
type source struct {
	ref   render.SourceRef
	stop  context.CancelFunc
	began time.Time
	// answered is closed when the source is known, or it is known why it cannot be read.
	answered chan struct{}
	// The following fields are protected by the lock of the store.
	// read is the source as it was read, and known what copies may have of it. Changes may wait.
	read, known populate.Source
	// isDoubted says that the API server has since denied the source, or answered that it does not exist, and that this
	// is not confirmed yet.
	isDoubted bool
	limit
	// users are the names of the templates that copy the source.
	users map[string]struct{}
}

// Options are what New needs.
type Options struct {
	// Objects reads sources, and Changes watches their metadata.
	Objects dynamic.Interface
	Changes metadata.Interface
	Mapper  meta.RESTMapper
	// Rules returns the rules about protected attributes.
	Rules func() (*attributes.Rules, error)
	// Changed is called with the names of the templates whose copies of a source may change.
	Changed func(templates []string)
	// Copies returns how many copies templates have of a source, and how many of them may have a size. Largest returns
	// the largest size that one of the templates allows, and is called more often.
	Copies  func(of render.SourceRef, size int, templates []string) (all, allowed int)
	Largest func(of render.SourceRef, templates []string) int
	// Delayed is called with the names of templates whose Delay changes.
	Delayed func(templates []string)
}

// New returns a store that follows sources until ctx ends.
func New(ctx context.Context, o Options) *Store {
	return &Store{ctx: ctx, Options: o, sources: map[render.SourceRef]*source{}}
}

// Add begins to follow sources for a template, besides those that it has.
func (s *Store) Add(template string, refs []render.SourceRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		known := s.sources[ref]
		if known == nil {
			known = &source{
				ref: ref, began: time.Now(), answered: make(chan struct{}), users: map[string]struct{}{},
				read: populate.SourceUnread(ref, errNotAnswered), known: populate.SourceUnread(ref, errNotAnswered),
			}
			s.sources[ref] = known
			s.start(s.ctx, known)
		}
		known.users[template] = struct{}{}
	}
}

// start follows a source in the background until it is stopped or ctx is done.
func (s *Store) start(ctx context.Context, of *source) {
	ctx, of.stop = context.WithCancel(ctx)
	go s.follow(ctx, of)
}

var errNotAnswered = errors.New("the API server has not answered yet")

// Set sets the sources of a template. It forgets those that no template has any more.
func (s *Store) Set(template string, refs []render.SourceRef) {
	s.Add(template, refs)
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, known := range s.sources {
		if _, uses := known.users[template]; !uses || slices.Contains(refs, ref) {
			continue
		}
		if delete(known.users, template); len(known.users) == 0 {
			known.stop()
			delete(s.sources, ref)
		}
	}
}

// Get returns what is known about a source.
func (s *Store) Get(ref render.SourceRef) populate.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sources[ref]; known != nil {
		return known.known
	}
	return populate.SourceUnread(ref, errNotAnswered)
}

// Pending reports whether the first answer about one of some sources is still expected.
func (s *Store) Pending(refs []render.SourceRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(refs, func(ref render.SourceRef) bool {
		known := s.sources[ref]
		return known != nil && !known.isAnswered() && time.Since(known.began) < answerTime
	})
}

// Wait returns when there is an answer about each source, or after a time.
func (s *Store) Wait(ctx context.Context, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.sources))
	s.mu.Unlock()
	for _, known := range all {
		select {
		case <-known.answered:
		case <-ctx.Done():
			return
		}
	}
}

func (k *source) isAnswered() bool {
	select {
	case <-k.answered:
		return true
	default:
		return false
	}
}

func (s *Store) isKnown(of *source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of.read.Content != nil
}

// isLost reports whether a source did not exist, or the right to read it was lost, when it was read last.
func (s *Store) isLost(of *source) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of.read.Lost
}

// doubt records that a source may be lost, so that no change of it that waits is copied until it is read again.
func (s *Store) doubt(of *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.isDoubted = true
}

// Judge judges all sources again after a change of the rules about protected attributes.
func (s *Store) Judge() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.sources))
	s.mu.Unlock()
	for _, known := range all {
		if known.isAnswered() {
			s.update(known, nil)
		}
	}
}

// set stores what was read of a source.
func (s *Store) set(of *source, read populate.Source) { s.update(of, &read) }

// update stores what was read of a source, unless that is nil, and judges it. It calls Changed if copies of the source
// change because of that, and Delayed if a change begins or ceases to wait.
func (s *Store) update(of *source, read *populate.Source) {
	s.mu.Lock()
	if read != nil {
		of.read, of.isDoubted = *read, false
	}
	wasDelayed := of.isDelayed
	known := s.next(of)
	isSame, isDelayChanged := of.known.Same(known), of.isDelayed != wasDelayed
	of.known = known
	users := slices.Sorted(maps.Keys(of.users))
	isFirst := !of.isAnswered()
	if isFirst {
		close(of.answered)
	}
	s.mu.Unlock()
	if !isSame || isFirst {
		s.Changed(users)
	}
	if isDelayChanged {
		s.Delayed(users)
	}
}
