package sources

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// Users who may change a source have it written into every namespace that its templates select. etcd keeps each version
// for five to ten minutes, until the API server compacts it, and has room for 2 GiB by default.
const (
	// copiedPerSecond is how many bytes the copies of all sources write per second.
	copiedPerSecond = 1 << 20
	// copySize is how many bytes a change writes for each copy besides its content: the metadata of the copy, and the
	// condition of its namespace. A loss writes two conditions instead, the second one when the source exists again.
	copySize = 2 << 10
	// longestDelay is the longest time that a change waits. If all copies are written once in that time, etcd has few
	// versions of them.
	longestDelay = 10 * time.Minute
	// reportedDelay is how long a change has to wait at least to be reported.
	reportedDelay = 10 * time.Second
)

// limit is when copies of a source follow its changes. It is protected by the lock of the store.
type limit struct {
	// followed is the state that copies follow, or zero before the first answer.
	followed populate.Source
	// changed is when copies were last changed to follow it, and resume the time at which they may follow another one.
	// Both are zero before the first change.
	changed, resume time.Time
	// shared is like changed, without losses of the source: those write no copies, and delay no other source.
	shared time.Time
	// isDelayed says that another state has to wait, for so long that it is reported.
	isDelayed bool
}

// next returns what is known about a source from now on. A removal never waits. Any other change waits until the copies
// of the change before have been paid for, and while it is in doubt. The first answer costs nothing, and neither does a
// source that cannot be read for the moment: nothing is written into its copies.
func (s *Store) next(of *source) populate.Source {
	newest, now := of.read.Guarded(of.ref, s.Rules), time.Now()
	isDue := !now.Before(of.resume)
	of.isDelayed = of.isDelayed && !isDue
	switch {
	case newest.Failure != nil && newest.Failure.Reason == populate.ReasonSourceUnread:
		return newest
	case of.followed == populate.Source{}:
		of.followed = newest
	case of.isDoubted, newest.Same(of.followed): // one in doubt is read again soon
	case isDue || s.removes(of, newest):
		s.pay(of, newest, now)
	default: // the answer changes only with resume, so users who change a source all the time cause few reports
		of.isDelayed = of.resume.Sub(of.changed) >= reportedDelay
		if of.isDelayed && of.followed.Lost && !newest.Lost {
			of.followed = populate.SourceDelayed(of.ref, of.resume)
		}
	}
	return of.followed.Guarded(of.ref, s.Rules) // the rules may be newer than this state
}

// removes reports whether a source has no content any more that may be copied, or copies are to be deleted. A user can
// have that asked all the time, so it counts no copies.
func (s *Store) removes(of *source, newest populate.Source) bool {
	if newest.Lost && !of.followed.Lost {
		return true
	}
	if of.followed.Content == nil || newest.Content != nil && newest.Size <= of.followed.Size {
		return false
	}
	largest := s.Largest(of.ref, slices.Collect(maps.Keys(of.users)))
	return of.followed.Size <= largest && (newest.Content == nil || newest.Size > largest)
}

// pay has copies follow a state of a source, and the next state wait for the time in which this one is written. All
// sources that changed within longestDelay, other than by a loss, have equal shares, so users who change one delay
// others little.
func (s *Store) pay(of *source, state populate.Source, now time.Time) {
	all, written := s.Copies(of.ref, state.Size, slices.Collect(maps.Keys(of.users)))
	if state.Content == nil {
		written = 0
	}
	isLoss := state.Lost && !of.followed.Lost
	of.followed, of.isDelayed = state, false
	if all == 0 {
		return
	}
	sharing := 1
	for _, other := range s.sources {
		if other != of && now.Sub(other.shared) < longestDelay {
			sharing++
		}
	}
	seconds := float64(all*copySize+written*state.Size) * float64(sharing) / copiedPerSecond
	wait := time.Duration(min(seconds, longestDelay.Seconds()) * float64(time.Second))
	if of.resume.Before(now) {
		of.resume = now
	}
	of.resume = of.resume.Add(min(wait, longestDelay-of.resume.Sub(now)))
	of.changed = now
	if !isLoss {
		of.shared = now
	}
	time.AfterFunc(of.resume.Sub(now), func() { s.update(of, nil) })
}

// Delay returns a sentence for people about the sources of a template that have changes which wait, or "" if there are
// none. Of several, it names the one that waits for the shortest time.
func (s *Store) Delay(template string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var waiting []*source
	for _, known := range s.sources {
		if _, uses := known.users[template]; uses && known.isDelayed {
			waiting = append(waiting, known)
		}
	}
	if len(waiting) == 0 {
		return ""
	}
	first := slices.MinFunc(waiting, func(a, b *source) int {
		return cmp.Or(a.resume.Compare(b.resume), cmp.Compare(a.ref.String(), b.ref.String()))
	})
	return populate.DelayedSources(len(waiting), first.ref, first.resume)
}
