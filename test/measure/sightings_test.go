package measure_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"nstpl.dev/nstpl/test/measure"
)

// A watch that ends before its time is an error. One that ends because its context does is none.
func TestFollow(t *testing.T) {
	t.Parallel()
	for range 20 { // which of two channels a select takes is random
		ctx, cancel := context.WithCancel(t.Context())
		events := watch.NewFake()
		seen := make(chan string, 1)
		ended := make(chan error, 1)
		go func() {
			ended <- measure.Follow(ctx, events, func(event watch.Event) { seen <- string(event.Type) })
		}()
		events.Add(&corev1.Namespace{})
		require.Equal(t, "ADDED", <-seen)
		cancel()
		events.Stop()
		require.NoError(t, <-ended)

		events = watch.NewFake()
		events.Stop()
		require.ErrorContains(t, measure.Follow(t.Context(), events, func(watch.Event) {}), "before its time")
	}
}

func TestSightings(t *testing.T) {
	t.Parallel()
	sightings := measure.NewSightings()
	before := time.Now()
	expected := sightings.Expect("a")
	sightings.Record("b")
	sightings.Record("a")
	sightings.Record("a")
	at, err := measure.Await(t.Context(), "a", expected)
	require.NoError(t, err)
	require.False(t, at.Before(before))
	require.Empty(t, expected, "it was recorded once")
}
