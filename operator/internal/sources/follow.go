package sources

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"

	"nstpl.dev/nstpl/operator/engine/populate"
)

const (
	// missTime is how long a source must be missing before it counts as lost. Users replace a source by deleting it and
	// creating it again, and its copies must outlast that.
	missTime = 5 * time.Second
	// denyTime is how long the API server must deny a source before the right to read it counts as lost.
	denyTime = 30 * time.Second
	// recheckTime is how often a source is read without a change, since no event tells that the right was lost.
	recheckTime = 15 * time.Second
	// firstReportTime is how long it is not reported that a source which was never read is denied.
	firstReportTime = 2 * time.Second
	// unreadTime is how long reads of a source must fail before its content counts as unknown: its kind is no longer
	// served in that version, for example.
	unreadTime = time.Minute
	// lossRetry is how often a source is read again that is denied, since no event tells of a new right, or that is
	// missing and does not count as lost yet.
	lossRetry = time.Second
	// A source is read again after a failure: after firstRetry, and then less and less often until lastRetry.
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// readPause is the time between two reads of a source that changes all the time.
	readPause = time.Second
)

// follow reads a source and watches it until ctx ends.
func (s *Store) follow(ctx context.Context, of *source) {
	f := &follower{Store: s, source: of}
	retry := firstRetry
	for ctx.Err() == nil {
		wait, err := f.pass(ctx)
		switch {
		case wait > 0:
			retry = firstRetry
		case err != nil:
			wait, retry = retry, min(2*retry, lastRetry)
		default: // the watch has ended, as it does after some time
			wait, retry = firstRetry, firstRetry
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// follower follows one source. Its fields are used by one goroutine.
type follower struct {
	*Store
	*source
	// version is the resourceVersion of the source that was read last, or "" if there is none.
	version string
	// missing is when the source began to be missing, denied when the API server began to deny it, and failing when
	// other reads began to fail. They are zero otherwise.
	missing, denied, failing time.Time
	// last is when the source was read after a change.
	last time.Time
}

// pass reads the source, watches its metadata, and reads it again after each change. It returns when the watch has
// ended or the source cannot be read, with the time after which to try again or an error.
func (f *follower) pass(ctx context.Context) (time.Duration, error) {
	mapping, err := f.Mapper.RESTMapping(f.ref.GroupKind(), f.ref.Version)
	if err == nil && mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		err = errors.New("its kind is not namespace-scoped")
	}
	if err != nil {
		f.fail(err)
		return 0, err
	}
	if wait, err := f.read(ctx, mapping); wait > 0 || err != nil {
		return wait, err
	}
	events, err := f.Changes.Resource(mapping.Resource).Namespace(f.ref.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.ref.Name).String(),
	})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	// What changed before the watch began has no event.
	if wait, err := f.read(ctx, mapping); wait > 0 || err != nil {
		return wait, err
	}
	return f.readChanges(ctx, mapping, events.ResultChan())
}

// readChanges reads the source after each change until the watch ends. Of many changes in a row, it reads the last.
func (f *follower) readChanges(
	ctx context.Context, mapping *meta.RESTMapping, events <-chan watch.Event,
) (time.Duration, error) {
	recheck := time.NewTicker(recheckTime)
	defer recheck.Stop()
	var changed <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case event, isOpen := <-events:
			if !isOpen {
				return 0, nil
			}
			object, isObject := event.Object.(*metav1.PartialObjectMetadata)
			if event.Type == watch.Error || !isObject {
				return 0, apierrors.FromObject(event.Object)
			}
			if changed == nil && (event.Type == watch.Deleted || object.ResourceVersion != f.version) {
				changed = time.After(time.Until(f.last.Add(readPause)))
			}
			continue
		case <-changed:
			changed, f.last = nil, time.Now()
		case <-recheck.C:
		}
		if wait, err := f.read(ctx, mapping); wait > 0 || err != nil {
			return wait, err
		}
	}
}

// read reads the source and stores what is known about it. It returns after which time to try again if the operator
// may not read it or its loss is not confirmed yet, or an error if the API server did not answer.
func (f *follower) read(ctx context.Context, mapping *meta.RESTMapping) (time.Duration, error) {
	object, err := f.Objects.Resource(mapping.Resource).Namespace(f.ref.Namespace).
		Get(ctx, f.ref.Name, metav1.GetOptions{})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	isDenied, isAbsent := apierrors.IsForbidden(err), isMissing(err, f.ref.Name)
	if !isDenied {
		f.denied = time.Time{}
	}
	if !isAbsent {
		f.missing = time.Time{}
	}
	if err == nil || isDenied || isAbsent {
		f.failing = time.Time{}
	}
	switch {
	case err == nil:
		f.version = object.GetResourceVersion()
		f.set(f.source, populate.NewSource(f.ref, object))
	case isAbsent:
		return f.miss(), nil
	case isDenied:
		f.deny(ctx, mapping)
		return lossRetry, nil
	default:
		f.fail(err)
		return 0, err
	}
	return 0, nil
}

// isMissing reports whether the API server answered that an object of a name does not exist. It answers otherwise if it
// does not serve the kind for the moment.
func isMissing(err error, name string) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Name == name
}

// miss records that the source does not exist, and returns after which time to try again to confirm that, or zero. A
// source remains as it was until then, so that one that is replaced is an ordinary change. One that was never read has
// no answer until then: namespaces that failed before a restart because it is missing do not seem to be mended.
func (f *follower) miss() time.Duration {
	if f.missing.IsZero() {
		f.missing = time.Now()
	}
	if time.Since(f.missing) < missTime && !f.isLost(f.source) {
		f.doubt(f.source)
		return lossRetry
	}
	f.version = ""
	f.set(f.source, populate.SourceNotFound(f.ref))
	return 0
}

// deny records that the API server denied the source. A source that was read remains known until that is confirmed.
func (f *follower) deny(ctx context.Context, mapping *meta.RESTMapping) {
	now := time.Now()
	if f.denied.IsZero() {
		f.denied = now
	}
	since := now.Sub(f.denied)
	isConfirmed, isKnown := since >= denyTime, f.isKnown(f.source)
	if !isConfirmed && (isKnown || since < firstReportTime && !f.isAnswered()) {
		f.doubt(f.source)
		return
	}
	lost := populate.SourceForbidden(f.ref, mapping.Resource.GroupResource())
	if !isConfirmed {
		lost = lost.Unconfirmed()
	} else {
		f.version = ""
		if isKnown {
			ctrl.LoggerFrom(ctx).Info("the operator may no longer read a source of templates", "source", f.ref.String())
		}
	}
	f.set(f.source, lost)
}

// fail records why the source could not be read, unless it is known to be lost. A source that is known from before
// stays known for unreadTime: after that, its copies stay as they are, and are unknown. Otherwise fail waits for an
// answer of the API server for answerTime.
func (f *follower) fail(err error) {
	if f.failing.IsZero() {
		f.failing = time.Now()
	}
	if f.isKnown(f.source) && time.Since(f.failing) < unreadTime ||
		!f.isAnswered() && time.Since(f.began) < answerTime {
		return
	}
	if !f.Get(f.ref).Lost {
		f.set(f.source, populate.SourceUnread(f.ref, err))
	}
}
