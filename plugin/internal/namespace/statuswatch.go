package namespace

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

const (
	// collectFor is how long a watch collects changes of namespaces before it computes all statuses again.
	collectFor = time.Second
	// readEvery is how often a watch reads the templates and exemptions, also if no namespace changes.
	readEvery = 5 * time.Second
)

// readIndex reads the templates that may select namespaces, and the exemptions of the namespaces.
type readIndex func(ctx context.Context, namespaces []*corev1.Namespace) (*match.Index, error)

// follow prints each namespace whose status changes, until ctx ends.
func (o *status) follow(ctx context.Context, c *cluster.Cluster, shown *board, read readIndex) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	changed, failed := make(chan struct{}, 1), make(chan error)
	informers := o.watchNamespaces(ctx, c, changed, cluster.Sender(ctx, failed))
	every := time.NewTicker(readEvery)
	defer every.Stop()
	var collected <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil // the user interrupted the command
		case err := <-failed:
			return err
		case <-changed:
			if collected == nil {
				collected = time.After(collectFor)
			}
			continue
		case <-collected:
			collected = nil
		case <-every.C:
		}
		if namespaces, isComplete := stored(informers); isComplete {
			shown.namespaces = namespaces
			o.updateIndex(ctx, shown, read)
			if changes := shown.changes(); len(changes) > 0 && ctx.Err() == nil {
				if err := o.write(changes, time.Now()); err != nil {
					return err
				}
			}
		}
	}
}

// updateIndex reads the index of a board, unless the user may not list templates. If that fails, the last one remains.
func (o *status) updateIndex(ctx context.Context, shown *board, read readIndex) {
	if shown.index == nil {
		return
	}
	index, err := read(ctx, shown.namespaces)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		o.noteOnce(fmt.Sprintf("templates cannot be read, so those that were read last are shown: %v", err))
	default:
		shown.index = index
	}
}

// watchNamespaces returns informers of the selected namespaces. Changed receives when a store has been filled, and
// after each change.
func (o *status) watchNamespaces(
	ctx context.Context, c *cluster.Cluster, changed chan<- struct{}, fail func(error),
) (informers []cache.SharedIndexInformer) {
	report := func(any) {
		select {
		case changed <- struct{}{}:
		default: // an earlier change has not been received yet
		}
	}
	for _, only := range o.namespaces.Watched() {
		informer := c.NamespaceInformer(only)
		informers = append(informers, informer)
		cluster.Follow(ctx, informer, report, report, fail)
		go func() {
			cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
			report(nil)
		}()
	}
	return informers
}

// stored returns the namespaces in the stores of informers. It reports whether each store has been filled.
func stored(informers []cache.SharedIndexInformer) (namespaces []*corev1.Namespace, isComplete bool) {
	for _, informer := range informers {
		if !informer.HasSynced() {
			return nil, false
		}
		for _, item := range informer.GetStore().List() {
			if ns, ok := item.(*corev1.Namespace); ok {
				namespaces = append(namespaces, ns)
			}
		}
	}
	return namespaces, true
}
