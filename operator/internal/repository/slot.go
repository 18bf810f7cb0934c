package repository

import "context"

// slots has room for one source whose commit is being read. To read the objects of a commit or artifact, to load its
// tree and to compile it may need half of the memory of the process, so sources do that one after the other. They
// download beside each other, so that no source waits for the slow server of another one.
var slots = make(chan struct{}, 1)

// slot is that of one source. It is used by one goroutine at a time.
type slot struct{ isHeld bool }

// acquire waits for the slot, which the source must not hold.
func (s *slot) acquire(ctx context.Context) error {
	select {
	case slots <- struct{}{}:
		s.isHeld = true
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release releases the slot, if the source holds it.
func (s *slot) release() {
	if s.isHeld {
		s.isHeld = false
		<-slots
	}
}
