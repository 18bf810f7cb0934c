package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/internal/backoff"
)

func TestNewNamespacesOvertakeBulkWork(t *testing.T) {
	queue := New(&backoff.Queues{})
	defer queue.ShutDown()
	queue.Enqueue(Rollout, 0, "b1", "b2", "b3")
	queue.Enqueue(Changed, 0, "changed")
	queue.Enqueue(Opening, 0, "new")
	queue.Enqueue(Opening, 0, "b3")
	require.Eventually(t, func() bool { return queue.Len() == 5 }, time.Second, time.Millisecond)
	var order []string
	for range 5 {
		item, _ := queue.Get()
		order = append(order, item.Name)
		queue.Done(item)
	}
	require.Equal(t, []string{"new", "b3", "changed", "b1", "b2"}, order)
}

func TestWaitingNamespaceIsReconciledEarlierAfterAChange(t *testing.T) {
	queue := New(&backoff.Queues{})
	defer queue.ShutDown()
	queue.Enqueue(Opening, time.Hour, "later")
	queue.Enqueue(Opening, 50*time.Millisecond, "soon")
	queue.Enqueue(Changed, 0, "now")
	var order []string
	for range 2 {
		item, _ := queue.Get()
		order = append(order, item.Name)
		queue.Done(item)
	}
	require.Equal(t, []string{"now", "soon"}, order)
	require.Zero(t, queue.Len(), "it is not due")

	queue.Enqueue(Rollout, 0, "bulk", "later")
	queue.Enqueue(Changed, 0, "changed")
	require.Eventually(t, func() bool { return queue.Len() == 3 }, time.Second, time.Millisecond)
	order = nil
	for range 3 {
		item, _ := queue.Get()
		order = append(order, item.Name)
		queue.Done(item)
	}
	require.Equal(t, []string{"later", "changed", "bulk"}, order, "a new namespace keeps its priority")
}
