package measure

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Sightings has the times at which expected events were first seen on a watch.
type Sightings struct {
	mu       sync.Mutex
	expected map[string]chan time.Time
}

// NewSightings returns Sightings that expect nothing yet.
func NewSightings() *Sightings {
	return &Sightings{expected: map[string]chan time.Time{}}
}

// Expect returns a channel that receives the time of the expected event.
func (s *Sightings) Expect(key string) <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected[key] = make(chan time.Time, 1)
	return s.expected[key]
}

// Record records that an event was seen. It does nothing if the event is not expected.
func (s *Sightings) Record(key string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, ok := s.expected[key]; ok {
		seen <- now
		delete(s.expected, key)
	}
}

// StartWatch is the Watch of a client of a resource.
type StartWatch func(context.Context, metav1.ListOptions) (watch.Interface, error)

// Watch begins a watch. A busy API server drops watches: this one resumes where it was.
func Watch(
	ctx context.Context, client kubernetes.Interface, selector string, start StartWatch,
) (watch.Interface, error) {
	now, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	return watchtools.NewRetryWatcherWithContext(ctx, now.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return start(ctx, options)
		},
	})
}

// Follow passes the events of a watch to look until ctx ends. An earlier end of the watch is an error. When it returns,
// the watch has ended.
func Follow(ctx context.Context, w watch.Interface, look func(watch.Event)) error {
	defer func() {
		w.Stop()
		for range w.ResultChan() { // until the watch closes it
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-w.ResultChan():
			if !ok {
				if ctx.Err() != nil { // which ends the watch, too
					return nil
				}
				return fmt.Errorf("a watch has ended before its time")
			}
			look(event)
		}
	}
}

// Await returns the time of the expected event, or an error if it is not seen within a minute.
func Await(ctx context.Context, what string, seen <-chan time.Time) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("%s: not seen within a minute", what))
	defer cancel()
	select {
	case at := <-seen:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}
