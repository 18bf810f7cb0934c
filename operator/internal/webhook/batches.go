package webhook

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Batches writes what requests add. All that come during one write share the next one, since concurrent writes of a
// replica would only conflict. A Write may also read, and set what the additions point to. It is safe for concurrent
// use.
type Batches[T any] struct {
	// Timeout limits one write. It should be as long as the API server waits for the first request.
	Timeout time.Duration
	// Write writes some additions, and returns an error for each, which may be nil, or one for all.
	Write func(ctx context.Context, added []T) ([]error, error)

	mu        sync.Mutex
	isRunning bool
	waiting   []T
	// done has, for each of waiting, a channel that receives its error.
	done []chan error
}

// Do writes an addition together with those of other requests. It returns when that is written, or when ctx ends; then
// it may be written later.
func (b *Batches[T]) Do(ctx context.Context, added T) error {
	done := make(chan error, 1)
	b.mu.Lock()
	b.waiting, b.done = append(b.waiting, added), append(b.done, done)
	if !b.isRunning {
		b.isRunning = true
		go b.run(context.WithoutCancel(ctx))
	}
	b.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run writes until nothing is waiting.
func (b *Batches[T]) run(ctx context.Context) {
	for {
		b.mu.Lock()
		batch, done := b.waiting, b.done
		b.waiting, b.done, b.isRunning = nil, nil, len(batch) > 0
		b.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		writing, cancel := context.WithTimeout(ctx, b.Timeout)
		errs, err := b.Write(writing, batch)
		cancel()
		if err != nil {
			errs = slices.Repeat([]error{err}, len(batch))
		}
		for i := range done {
			done[i] <- errs[i]
		}
	}
}
