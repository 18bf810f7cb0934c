package namespace

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

const (
	// collectFor is how long a watch collects changes of namespaces before it computes all statuses again.
	collectFor = time.Second
	// readEvery is how often a watch reads the templates and exemptions, however often namespaces change.
	readEvery = 5 * time.Second
)

// readIndex reads the templates that may select namespaces, and the exemptions of the namespaces. The index is nil if
// the templates cannot be read.
type readIndex func(ctx context.Context, namespaces []*corev1.Namespace) (index *match.Index, unread []error)

// indexOf returns the function that reads the index from a cluster.
func indexOf(c *cluster.Cluster) readIndex {
	return func(ctx context.Context, namespaces []*corev1.Namespace) (*match.Index, []error) {
		templates, err := c.Templates(ctx)
		if err != nil {
			return nil, []error{err}
		}
		return c.Index(ctx, templates, namespaces)
	}
}

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
		var reads bool
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
			reads = true
		}
		namespaces, isComplete := stored(informers)
		if !isComplete {
			continue
		}
		shown.namespaces = namespaces
		if reads {
			o.updateIndex(ctx, shown, read)
		}
		if changes := shown.changes(); len(changes) > 0 && ctx.Err() == nil {
			if err := o.write(changes, time.Now()); err != nil {
				return err
			}
		}
	}
}

// updateIndex reads the index of a board, unless the user may not list templates. If some of it cannot be read, the
// last index remains: without exemptions, exempt namespaces would be shown as if they were not exempt. What the user
// may not read besides the templates stays unknown, and the rest is updated.
func (o *status) updateIndex(ctx context.Context, shown *board, read readIndex) {
	if shown.index == nil {
		return
	}
	index, unread := read(ctx, shown.namespaces)
	if ctx.Err() != nil {
		return
	}
	for _, err := range unread {
		// A revision that does not exist any more stays unread, and the index assumes the stored spec.
		if index == nil || !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			o.noteOutdated(shown, err)
			return
		}
	}
	o.noteUnread(unread)
	shown.index, shown.isOutdated = index, false
}

// noteOutdated prints why the last index of a board remains, once until it is updated.
func (o *status) noteOutdated(shown *board, unread error) {
	if shown.isOutdated {
		return
	}
	shown.isOutdated = true
	// These errors say what is assumed instead, which does not hold here.
	if exemptions, ok := errors.AsType[cluster.UnreadExemptionsError](unread); ok {
		unread = exemptions.Err
	} else if revisions, ok := errors.AsType[cluster.UnreadRevisionsError](unread); ok {
		unread = revisions.Err
	}
	o.Note("templates and exemptions cannot be read, so those that were read last are shown: %v", unread)
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
