package repository

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/files"
	"nstpl.dev/nstpl/operator/internal/repository/artifact"
)

// defaultInterval is the default of spec.interval.
const defaultInterval = time.Minute

// intervalOf returns how often the source of a PolicyRepository is asked.
func intervalOf(repository *v1alpha1.PolicyRepository) time.Duration {
	if repository.Spec.Interval != nil {
		return repository.Spec.Interval.Duration
	}
	return defaultInterval
}

// follower asks the source of one PolicyRepository for new commits.
type follower struct {
	sources *sources
	// notify is called after each answer.
	notify  func()
	measure measure

	mu sync.Mutex
	// busy is true while a goroutine asks the source that is asked, and cancel stops it.
	busy   bool
	asked  string
	cancel context.CancelFunc
	// isStale is true if the source must be asked again, whatever the pace: it has changed since the goroutine began to
	// ask, or is another one now, or was not followed for a while.
	isStale bool
	pace    pace
	answer  answer

	// watched is the object of Flux that is watched until stopWatch is called, or empty.
	watched   v1alpha1.ArtifactSource
	stopWatch context.CancelFunc
}

// answer is what a follower knows.
type answer struct {
	// fetched is the newest commit that was downloaded.
	fetched string
	// tree is the tree of the newest commit without violations, or nil if there is none.
	tree *vetted
	// problem is why a newer commit than that of the tree is not followed, or nil.
	problem *problem
	// inForce is what was in force before the source was asked, with an empty commit if nothing was, or nil if that is
	// unknown.
	inForce *committed
	// source is the part of the spec that the answer is about, and path the spec.path in it. While a commit cannot be
	// followed, the tree may be that of the path before.
	source, path string
	// newest is why the newest revision cannot be followed, and applied why the commit in force cannot be repaired.
	newest, applied refused
}

// refused is why the content of a revision cannot be followed. err is nil if it can, or if that is unknown. What is
// refused is not read again before a user asks for it.
type refused struct {
	of  revision
	err error
	// pause is zero, or how long a commit that took too long to read is not read again from the time of since on.
	// Another node, or the same one with less to do, may be fast enough.
	pause time.Duration
	since time.Time
}

// maxPause is the longest pause after a commit took too long to read.
const maxPause = 2 * time.Hour

// holds reports whether a revision is known to be refused.
func (r refused) holds(of revision, now time.Time) bool {
	return r.err != nil && r.of == of && (r.pause == 0 || now.Sub(r.since) < r.pause)
}

// after returns what is known after a revision was read, which may have failed.
func (r refused) after(of revision, err error, now time.Time) refused {
	switch {
	case isRefusal(err):
		return refused{of: of, err: err}
	case !errors.Is(err, errSlow):
		return r
	case r.of != of:
		r.pause = 0
	}
	return refused{of, err, max(readTimeout, min(2*r.pause, maxPause)), now}
}

// isAbout reports whether an answer is about the source that a PolicyRepository has now.
func (a answer) isAbout(repository *v1alpha1.PolicyRepository) bool {
	return a.source == sourceOf(repository)
}

// problem is why a commit is not followed.
type problem struct {
	reason, message string
	// passes is true if the problem may pass by itself.
	passes         bool
	violations     []v1alpha1.RepositoryViolation
	violationCount int
	// rollback is the commit that waits for a confirmation, or nil.
	rollback *v1alpha1.PendingRollback
}

// passing are the reasons of problems that may pass by themselves.
var passing = []files.Reason{files.Unreachable, files.StorageFailed, files.SourceNotReady}

func problemOf(err error) *problem {
	if err == nil {
		return nil
	}
	if broken, ok := errors.AsType[*violationsError](err); ok {
		return broken.problem()
	}
	p := &problem{reason: v1alpha1.RepositoryFetchFailed, message: err.Error(), passes: true}
	if failed, ok := errors.AsType[*files.Error](err); ok {
		p.reason = string(failed.Reason)
		p.passes = slices.Contains(passing, failed.Reason)
	}
	return p
}

// follow returns the latest answer, and after which time it should be called again. It begins to ask the source if that
// is due. Of another source than that of the spec, it returns no tree but the one in force, which may be nil: what the
// change of the spec was to prevent, such as a commit without a signature, must not be applied after it.
func (f *follower) follow(
	ctx context.Context, repository *v1alpha1.PolicyRepository, inForce *vetted,
) (answer, string, time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watch(ctx, repository.Spec.SourceRef)
	source := sourceOf(repository)
	if f.busy && f.asked != source {
		f.isStale = true
		f.cancel() // update notifies
	}
	if f.answer.source != source && f.answer.tree != inForce {
		f.answer = answer{}
	}
	interval := intervalOf(repository)
	requested := repository.Annotations[v1alpha1.SyncRequestedAnnotation]
	isNew := !f.answer.isAbout(repository) && !f.busy
	isDue := isNew || f.isStale || f.answer.isConfirmed(repository)
	if wait := f.pace.wait(interval, requested, time.Now()); wait > 0 && !isDue {
		return f.answer, f.pace.requested, wait
	}
	if !f.busy {
		f.busy, f.asked, f.isStale = true, source, false
		ctx, f.cancel = context.WithCancel(ctx)
		before := f.answer
		if requested != f.pace.requested {
			before.newest, before.applied = refused{}, refused{}
		}
		go f.update(ctx, repository.DeepCopy(), before)
	}
	return f.answer, f.pace.requested, interval
}

// update asks the source and keeps the answer.
func (f *follower) update(ctx context.Context, repository *v1alpha1.PolicyRepository, before answer) {
	after := f.ask(ctx, repository, before)
	after.source = sourceOf(repository)
	f.mu.Lock()
	if ctx.Err() == nil {
		requested := repository.Annotations[v1alpha1.SyncRequestedAnnotation]
		failed := after.problem != nil && after.problem.passes
		f.pace.answered(requested, after.fetched != before.fetched, failed, time.Now())
		f.answer = after
	}
	f.cancel()
	f.busy = false
	f.mu.Unlock()
	f.notify()
}

// sourceChanged has the source asked at once. An answer that is awaited is not: its source has changed.
func (f *follower) sourceChanged() {
	f.mu.Lock()
	f.isStale = true
	if f.busy {
		f.cancel() // update notifies
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	f.notify()
}

// rest forgets the answer, while the PolicyRepository is not followed: it may be out of date when that begins again.
// The source is asked first then, as after a restart.
func (f *follower) rest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer, f.isStale = answer{}, true
	if f.busy {
		f.cancel()
	}
}

// watch has sourceChanged called when an object of Flux changes, and no longer when another one did. A nil reference
// ends that.
func (f *follower) watch(ctx context.Context, ref *v1alpha1.ArtifactSource) {
	var wanted v1alpha1.ArtifactSource
	if ref != nil {
		wanted = *ref
	}
	if f.watched == wanted {
		return
	}
	if f.stopWatch != nil {
		f.stopWatch()
	}
	f.watched, f.stopWatch = wanted, nil
	if ref != nil {
		ctx, f.stopWatch = context.WithCancel(ctx)
		go artifact.Watch(ctx, f.sources.objects, wanted, f.sourceChanged)
	}
}

// stop ends the watch and the goroutine that asks.
func (f *follower) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopWatch != nil {
		f.stopWatch()
	}
	if f.busy {
		f.cancel()
	}
}

// sourceOf returns the part of a spec on which the answers depend.
func sourceOf(repository *v1alpha1.PolicyRepository) string {
	data, err := json.Marshal([]any{repository.Spec.Git, repository.Spec.SourceRef, repository.Spec.Path})
	if err != nil {
		return err.Error() // it was decoded from JSON
	}
	return string(data)
}

// ask asks the source. If the newest commit is not valid and no tree is known, it fetches the commit that is in force,
// so that a restart does not stop its repair.
func (f *follower) ask(ctx context.Context, repository *v1alpha1.PolicyRepository, before answer) answer {
	after := answer{fetched: before.fetched, tree: before.tree, path: repository.Spec.Path}
	if before.isAbout(repository) {
		after.newest, after.applied = before.newest, before.applied
	}
	inForce, err := f.sources.inForce(ctx, repository)
	if err != nil {
		after.problem = problemOf(err)
		return after
	}
	after.inForce = &inForce
	from, err := f.sources.open(ctx, repository, inForce.commit)
	if err != nil {
		after.problem = problemOf(err)
		return after
	}
	defer from.close()
	return f.askSource(ctx, from, repository, before, after)
}

// askSource asks an open source. after is what is known without it, such as what is in force.
func (f *follower) askSource(
	ctx context.Context, from treeSource, repository *v1alpha1.PolicyRepository, before, after answer,
) answer {
	newest, err := from.newest(ctx)
	if err != nil {
		after.problem = problemOf(err)
		return f.withApplied(ctx, from, repository, after, revision{})
	}
	if before.isAbout(repository) && before.tree.isOf(newest, repository.Spec.Path) {
		after.fetched = newest.commit
		return after
	}
	tree, err := f.fetch(ctx, from, newest, repository.Spec.Path, &after.newest)
	if err != nil {
		after.problem = problemOf(err)
		if after.problem.violationCount > 0 {
			after.fetched = newest.commit
		}
		return f.withApplied(ctx, from, repository, after, newest)
	}
	rollback, err := f.rollback(ctx, repository, tree)
	if err != nil || rollback != nil {
		after.problem = cmp.Or(rollback, problemOf(err))
		after.fetched = newest.commit
		return f.withApplied(ctx, from, repository, after, revision{})
	}
	if err := from.keep(newest.commit); err != nil {
		after.problem = problemOf(err)
	}
	after.fetched, after.tree = newest.commit, tree
	return after
}

// fetch returns the tree of a revision. It does not read the known refused one again while it is refused, and remembers
// another one that is refused.
func (f *follower) fetch(
	ctx context.Context, from treeSource, wanted revision, directory string, known *refused,
) (*vetted, error) {
	if known.holds(wanted, time.Now()) {
		return nil, known.err
	}
	tree, err := fetch(ctx, from, wanted.commit, directory, f.measure)
	*known = known.after(wanted, err, time.Now())
	return tree, err
}

// withApplied adds the tree that is in force to an answer that has none. failed is the revision whose directory at
// spec.path could not be fetched just now, as the problem of the answer says, or empty. If the path was changed since
// the tree was brought into force, the tree is still that of the path before.
func (f *follower) withApplied(
	ctx context.Context, from treeSource, repository *v1alpha1.PolicyRepository, after answer, failed revision,
) answer {
	inForce := after.inForce
	if after.tree != nil || inForce.commit == "" {
		return after
	}
	known := &after.applied
	if inForce.path == repository.Spec.Path {
		if inForce.commit == failed.commit {
			after.problem.message += "; its objects are not repaired"
			return after
		}
		if inForce.commit == after.newest.of.commit {
			known = &after.newest
		}
	}
	tree, err := f.fetch(ctx, from, from.revision(inForce.commit), inForce.path, known)
	if err != nil {
		after.problem.message = fmt.Sprintf("%s; and %s, which is in force, cannot be fetched, so it is not "+
			"repaired: %v", after.problem.message, named(inForce.commit), err)
		return after
	}
	// That an older commit is kept in force does not make it the one with which newer ones are compared.
	tree.committed = time.Time{}
	after.tree = tree
	return after
}
