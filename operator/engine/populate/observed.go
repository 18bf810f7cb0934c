package populate

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	patches "nstpl.dev/nstpl/operator/internal/patch"
)

// asObserved calls write with the resourceVersion of an object that was observed, so that the API server denies a late
// write of a former leader after the next leader changed the object. If the object changed in a way that does not
// change the decision, by isSame, asObserved calls write again without a resourceVersion. Otherwise a client that
// writes the object all the time could keep nstpl from changing it.
func asObserved[T any](
	ctx context.Context, objects metadata.ResourceInterface, observed *metav1.PartialObjectMetadata,
	isSame func(observed, current *metav1.PartialObjectMetadata) bool,
	write func(ctx context.Context, version string) (T, error),
) (T, error) {
	counted, sent := patches.CountRequests(ctx)
	written, err := write(counted, observed.ResourceVersion)
	if !apierrors.IsConflict(err) {
		return written, err
	}
	current, lookupErr := find(ctx, objects, observed.Name)
	switch {
	case lookupErr != nil:
		return written, lookupErr
	case current == nil || !isSame(observed, current):
		if sent() > 1 {
			err = &Failure{Reason: metav1.StatusReasonConflict, Repeated: true, err: err}
		}
		return written, err
	}
	return write(ctx, "")
}

// sameForDeletion reports whether two states are deleted in the same way: an RBAC object that gets a finalizer must be
// emptied first.
func sameForDeletion(a, b *metav1.PartialObjectMetadata) bool {
	return SameRecord(a, b) && slices.Equal(a.Finalizers, b.Finalizers)
}
