package selection

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// batch are additions that are written together.
type batch struct {
	additions []addition
	// errs are the errors of the additions. They are known once done is closed.
	errs []error
	done chan struct{}
}

// writeTimeout is how long the write of a batch may take: as long as the API server waits for the first request.
const writeTimeout = 10 * time.Second

// writeWithOthers writes an addition into the ConfigMap together with those of other requests. It returns when that is
// written, or when ctx ends; then it may be written later.
func (a *Admission) writeWithOthers(ctx context.Context, added addition) error {
	a.mu.Lock()
	if a.next == nil {
		a.next = &batch{done: make(chan struct{})}
		go a.writeNext(context.WithoutCancel(ctx))
	}
	joined, at := a.next, len(a.next.additions)
	joined.additions = append(joined.additions, added)
	a.mu.Unlock()
	select {
	case <-joined.done:
		return joined.errs[at]
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeNext writes the next batch after the write that is under way.
func (a *Admission) writeNext(ctx context.Context) {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.mu.Lock()
	b := a.next
	a.next = nil
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	b.errs = a.write(ctx, b.additions)
	close(b.done)
}

// write writes additions into the ConfigMap in one request, and returns once the admission policies use them. It
// returns an error for each addition, or nil.
func (a *Admission) write(ctx context.Context, additions []addition) []error {
	var refused []error
	var version string
	err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error {
		configMap, err := a.ConfigMaps.Get(ctx, v1alpha1.SelectorsConfigMap, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var stored record
		stored, refused = read(configMap).with(additions)
		changed, err := stored.write(configMap)
		if err != nil {
			return err
		}
		if changed {
			if configMap, err = a.ConfigMaps.Update(ctx, configMap, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		version = configMap.ResourceVersion
		return nil
	})
	if err == nil {
		err = a.awaitKnown(ctx, version)
	}
	if err != nil {
		return slices.Repeat([]error{err}, len(additions))
	}
	return refused
}
