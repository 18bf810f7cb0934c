package backoff

import (
	"cmp"
	"sync"
	"time"
)

// What another client changes is corrected at once at first. After quickRounds corrections of an object, each with less
// than FightEnds since the one before, two clients fight over it: the next correction waits, and each further one waits
// twice as long, up to LastPause.
const (
	quickRounds = 20
	FirstPause  = time.Second
	LastPause   = 5 * time.Minute
	FightEnds   = 10 * time.Minute
)

// Fights knows which objects other clients change again and again. A group has objects that are asked for together,
// such as those of a namespace. It is safe for concurrent use.
type Fights[G, K comparable] struct {
	mu     sync.Mutex
	groups map[G]map[K]Fight
	swept  time.Time
}

// Fight is what is known about the corrections of an object.
type Fight struct {
	// By names the client that changed the object last, or is empty.
	By     string
	Rounds int
	// Last is the time of the latest correction.
	Last time.Time
}

// NewFights returns Fights without one.
func NewFights[G, K comparable]() *Fights[G, K] {
	return &Fights[G, K]{groups: map[G]map[K]Fight{}}
}

// Corrected records that a change of an object by another client was corrected.
func (f *Fights[G, K]) Corrected(group G, object K, by string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweep(now)
	objects := f.groups[group]
	if objects == nil {
		objects = map[K]Fight{}
		f.groups[group] = objects
	}
	fight := Fight{by, 1, now}
	if known := objects[object]; !known.isOver(now) {
		fight.By = cmp.Or(by, known.By)
		fight.Rounds += known.Rounds
	}
	objects[object] = fight
}

// Name sets the name of the client that changes an object again and again, if it was unknown at the correction.
func (f *Fights[G, K]) Name(group G, object K, by string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fight, exists := f.groups[group][object]; exists {
		fight.By = by
		f.groups[group][object] = fight
	}
}

// Wait returns how long the next correction of an object waits, or zero. It is at most longest after the latest one.
func (f *Fights[G, K]) Wait(group G, object K, longest time.Duration, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.groups[group][object]
	if known.isOver(now) {
		return 0
	}
	return max(0, known.Last.Add(min(known.pause(), longest)).Sub(now))
}

// In returns the objects of a group that are fought over, until FightEnds after their latest correction.
func (f *Fights[G, K]) In(group G, now time.Time) map[K]Fight {
	f.mu.Lock()
	defer f.mu.Unlock()
	fought := map[K]Fight{}
	for object, known := range f.groups[group] {
		if !known.isOver(now) && known.pause() > 0 {
			fought[object] = known
		}
	}
	return fought
}

// Over ends the fight over an object.
func (f *Fights[G, K]) Over(group G, object K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.groups[group], object)
}

// Forget drops a group that no longer exists.
func (f *Fights[G, K]) Forget(group G) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.groups, group)
}

// sweep drops the fights that are over. The caller holds the lock.
func (f *Fights[G, K]) sweep(now time.Time) {
	if now.Sub(f.swept) < FightEnds {
		return
	}
	f.swept = now
	for group, objects := range f.groups {
		for object, known := range objects {
			if known.isOver(now) {
				delete(objects, object)
			}
		}
		if len(objects) == 0 {
			delete(f.groups, group)
		}
	}
}

func (f Fight) isOver(now time.Time) bool { return now.Sub(f.Last) >= FightEnds }

// pause returns how long the next correction waits after the latest.
func (f Fight) pause() time.Duration {
	if f.Rounds < quickRounds {
		return 0
	}
	pause := FirstPause
	for range f.Rounds - quickRounds {
		if pause *= 2; pause >= LastPause {
			return LastPause
		}
	}
	return pause
}
