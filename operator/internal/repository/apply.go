package repository

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/patch"
)

const (
	// writes is how many objects are written at the same time.
	writes = 16
	// maxChanges is how many objects one pass applies and deletes, besides those that the pass before it could not, and
	// maxRevocations. After that, the status reports the progress, and the next pass begins with what has changed
	// meanwhile: a newer commit, a suspension, or an edit.
	maxChanges = 500
	// maxRevocations is how many objects that exist one pass changes besides, and how many it deletes or releases, if
	// it does not apply all others: what a commit takes away waits neither for what it creates, nor for the commits
	// after it.
	maxRevocations = 100
	// stepTime is how long a pass begins the changes of one step: requests that a webhook keeps waiting until they time
	// out would otherwise keep newer commits, suspensions and other PolicyRepositories waiting, too.
	stepTime = time.Minute
	// maxPendingSize is the size in bytes up to which a record takes objects that may have been created without an
	// answer: more than 1,000 of them, each of which the next pass looks up if it exists.
	maxPendingSize = maxRecordSize / 8
	// keptRoom is the size in bytes of a record that is left to objects of the cluster: some 3,500. Others need them.
	// Only authors of the root directory declare these, except for the roles by which the operator may bind others. A
	// template would not lose what is revoked without them, and hierarchy allows 500.
	keptRoom = maxRecordSize / 8
)

// outcome is the result of carrying out a plan.
type outcome struct {
	inventory.Plan
	// unmade are the objects with a change that this pass was to make and has not made, and how often it was tried: it
	// failed, or waits for one that failed, or the time of its step had ended.
	unmade map[inventory.ID]int
	// failures are the objects that could not be written.
	failures []failure
	// unanswered are the objects that may have been created although their creation failed.
	unanswered map[inventory.ID]bool
	// applied and deleted are the numbers of objects that were written.
	applied, deleted int
	// remaining is the number of objects that are left to the next pass. lacksRoom means that some of them have no room
	// in the record.
	remaining int
	lacksRoom bool
	// differed are the declarations that were not in force before.
	differed map[declaration]bool
	// stored are the objects that were applied, as the API server stored them.
	stored []stored
	// contested are the objects that do not stay as they are declared.
	contested []contested
	// due is when the first of the applies that were postponed is due, or 0 if there are none.
	due time.Duration
}

// failure is an object that could not be written.
type failure struct {
	inventory.ID
	err error
}

// isComplete reports whether all objects are as the tree declares them, but for namespaces that wait for a
// confirmation, and contested objects.
func (o outcome) isComplete() bool { return !o.hasFailed() && o.remaining == 0 }

// hasFailed reports whether an object cannot be written.
func (o outcome) hasFailed() bool { return len(o.failures) > 0 || len(o.Conflicts) > 0 }

// passes reports whether no person needs to act about what has failed.
func (o outcome) passes() bool {
	needsPerson := func(c inventory.Conflict) bool { return !c.Passes }
	return len(o.failures) == 0 && !slices.ContainsFunc(o.Conflicts, needsPerson)
}

// wait returns when the next pass is due, or the given time if no pass is.
func (o outcome) wait(complete time.Duration) time.Duration {
	switch {
	case o.hasFailed(), o.lacksRoom:
		return retryFailed
	case o.remaining > 0:
		return time.Nanosecond // zero would mean never
	case o.due > 0:
		return min(o.due, complete)
	case len(o.Used) > 0: // no event tells that the namespaces of others have left
		return min(retryUsed, complete)
	case len(o.contested) > 0:
		return min(backoff.FightEnds, complete)
	}
	return complete
}

// limit leaves all but the first changes of a plan to the next pass. Of the others, it keeps some that may take
// something away: changes of objects that exist and do not need what is left, and deletions. What the last pass did not
// make takes no room: it is tried with the rest, or it would keep all that comes after it waiting.
func (o *outcome) limit(before map[inventory.ID]int) {
	o.unmade = map[inventory.ID]int{}
	room := maxChanges
	applies, left := cut(o, o.Applies, declared, before, &room)
	if len(left) > 0 {
		var created, changed []inventory.Apply
		for _, change := range left {
			if change.Live == nil && change.Replaced == nil {
				created = append(created, change)
			} else {
				changed = append(changed, change)
			}
		}
		room = maxRevocations
		more, rest := cut(o, o.Hold(changed, created), declared, before, &room)
		more = inventory.Keeping(more, rest)
		o.Held = slices.Concat(o.Held, created, rest)
		o.remaining = len(left) - len(more)
		applies = slices.Concat(applies, more)
		room = maxRevocations
	}
	o.Applies = applies
	var releases, deletes []*unstructured.Unstructured
	o.Releases, releases = cut(o, o.Releases, render.IDOf, before, &room)
	o.Deletes, deletes = cut(o, o.Deletes, render.IDOf, before, &room)
	o.remaining += len(releases) + len(deletes)
}

// cut returns the first changes, as many as there is room for, and the others.
func cut[T any](
	o *outcome, changes []T, idOf func(T) inventory.ID, before map[inventory.ID]int, room *int,
) (now, later []T) {
	for i, change := range changes {
		id := idOf(change)
		tries, wasUnmade := before[id]
		if *room == 0 && !wasUnmade {
			return changes[:i], changes[i:]
		}
		if !wasUnmade {
			*room--
		}
		o.unmade[id] = tries
	}
	return changes, nil
}

// limitPending leaves creations to later passes for which the record has no room. Chance decides which: those that are
// refused again and again keep no others waiting for ever. What all others need goes first. A creation has failed if
// the record lacks room for it also without the names of pending objects.
func (o *outcome) limitPending(rec *record, tree string) {
	room, pendingRoom, names := rec.room(tree), maxPendingSize, 0
	for id := range rec.pending {
		pendingRoom -= pendingSize(id)
		names += pendingSize(id) - uidSize
	}
	order := slices.Clone(o.Applies)
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	slices.SortStableFunc(order, func(a, b inventory.Apply) int { return cmp.Compare(rankOf(a), rankOf(b)) })
	isLeft := map[inventory.ID]bool{}
	var left []inventory.Apply
	for _, change := range order {
		id := declared(change)
		if change.Live != nil || rec.pending[id] {
			continue
		}
		size, most, isFirst := pendingSize(id), room, rankOf(change) == 0
		if inventory.PhaseOf(id.GroupKind) != inventory.Cluster {
			most -= keptRoom
		}
		if size <= most && (isFirst || size <= pendingRoom) {
			room, pendingRoom, names = room-size, pendingRoom-size, names+size-uidSize
			continue
		}
		if most+names < size {
			o.failures = append(o.failures, failure{id, errFull})
		}
		left = append(left, change)
		isLeft[id] = true
	}
	if len(left) == 0 {
		return
	}
	o.remaining += len(left)
	o.lacksRoom = true
	o.Applies = o.Hold(slices.DeleteFunc(o.Applies, func(change inventory.Apply) bool {
		return isLeft[declared(change)]
	}), left)
	o.Held = append(o.Held, left...)
}

// rankOf returns 0 for objects of the cluster that the root directory declares, which all others need, and otherwise 1.
// The permissions to bind ClusterRoles have no priority: every author of a directory can cause 500 of them that the API
// server always denies.
func rankOf(change inventory.Apply) int {
	isCluster := inventory.PhaseOf(declared(change).GroupKind) == inventory.Cluster
	if isCluster && inventory.BoundRoles(change.Declared) == nil {
		return 0
	}
	return 1
}

// isConfirmed reports whether a person has confirmed the deletion of the namespaces that wait by the record. The
// annotation and the status are of one version of the PolicyRepository, so the status is what the person was shown. The
// record has others if the status could not be written after it.
func isConfirmed(repository *v1alpha1.PolicyRepository, commit string, rec *record) bool {
	shown := repository.Status.PendingDeletions
	return repository.Annotations[v1alpha1.ConfirmedCommitAnnotation] == commit &&
		shown != nil && shown.Commit == commit && shown.Digest == rec.deletions.Digest()
}

// useConfirmation removes the confirmations of a commit once the record has what was confirmed. An Event says if one
// deletes nothing: if it is void.
func (r *Repositories) useConfirmation(
	ctx context.Context, repository *v1alpha1.PolicyRepository, commit string, isVoid bool,
) error {
	wasGiven := repository.Annotations[v1alpha1.ConfirmedCommitAnnotation] == commit
	isUsed := func(_, of string) bool { return of == commit }
	if err := r.removeConfirmations(ctx, repository, isUsed); err != nil {
		return err
	}
	if wasGiven && isVoid {
		r.recordVoid(repository, commit)
	}
	return nil
}

// recordVoid records an Event that says that a confirmation of deletions is void.
func (r *Repositories) recordVoid(repository *v1alpha1.PolicyRepository, commit string) {
	r.Recorder.Eventf(repository, nil, corev1.EventTypeWarning, "ConfirmationVoid", "Sync",
		"the confirmation of %s deletes nothing, since these are not the deletions that wait: "+
			"see status.pendingDeletions for them", named(commit))
}

// applyTree makes the objects in the cluster those that a tree declares. It makes a limited number of changes: the
// outcome says how many remain. owners are the PolicyRepositories that follow trees, by the name of the tree.
func (r *Repositories) applyTree(
	ctx context.Context, repository *v1alpha1.PolicyRepository, tree *vetted,
	owners map[string]*v1alpha1.PolicyRepository,
) (outcome, error) {
	to, err := r.Cluster.as(repository.Spec.ServiceAccountName)
	if err != nil {
		return outcome{}, err
	}
	f, measure := r.of(repository), r.Metrics.of(repository.Name)
	rec, err := readRecord(ctx, r.Live, repository)
	if err != nil {
		return outcome{}, err
	}
	r.scopes.set(repository, tree, rec) // before the objects are read: a later event is compared with this tree
	live, err := r.Cluster.live(ctx)
	if err != nil {
		return outcome{}, err
	}
	others := maps.Clone(owners)
	maps.DeleteFunc(others, func(name string, owner *v1alpha1.PolicyRepository) bool {
		return name == tree.root || owner.UID == repository.UID
	})
	if err := r.resolvePending(ctx, f, rec, treesOf(tree, others, rec), live); err != nil {
		return outcome{}, err
	}
	woken, keepers := r.accept(repository.UID, others, rec, live)
	undecided, takers := r.leave(repository.UID, others, rec, live)
	wasPending := maps.Clone(rec.pending)
	confirmed := isConfirmed(repository, tree.commit, rec)
	o := outcome{Plan: inventory.NewPlan(tree.declared,
		inventory.State{Live: live, Created: rec.created, Undecided: undecided, Deletions: rec.deletions},
		inventory.Options{
			Tree: tree.root, Adopt: repository.Spec.ExistingNamespaces == v1alpha1.ExistingAdopt,
			Limit: repository.Spec.DeletionLimit, Confirmed: confirmed,
		})}
	f.postpone(&o, time.Now())
	o.limit(f.unmade)
	rec.forgetGone(live)
	rec.deletions = o.Deletions
	rec.inForce = committed{tree.commit, cmp.Or(tree.committed, rec.inForce.at), tree.path}
	o.limitPending(rec, tree.root)
	for _, change := range o.Applies {
		if change.Live == nil {
			rec.pending[declared(change)] = true
			rec.trees[tree.root] = true
		}
	}
	if err := rec.write(ctx, r.Client, repository); err != nil {
		return outcome{}, err
	}
	if f.inForce != tree { // in each pass, two trees without room in their records would wake each other for ever
		maps.Copy(woken, keepers)
		maps.Copy(woken, takers)
	}
	f.inForce = tree
	if !maps.Equal(rec.created, r.scopes.of(repository.UID).Created) {
		r.scopes.set(repository, tree, rec) // so that other trees know what this one has taken over and left
	}
	for name := range woken {
		r.wake(name)
	}
	if err := r.useConfirmation(ctx, repository, tree.commit, len(o.Waiting) > 0 && !confirmed); err != nil {
		return outcome{}, err
	}
	rivals := f.rivals(ctx, &o, to, time.Now())
	created := applyAll(ctx, to, &o, measure)
	f.settle(&o, tree, rivals, time.Now())
	for _, object := range created {
		rec.created[object.GetUID()] = true
	}
	maps.DeleteFunc(rec.pending, func(id inventory.ID, _ bool) bool { return !wasPending[id] && !o.unanswered[id] })
	for id := range o.unanswered {
		delete(f.unanswered, id) // it may take pendingFor from now on
	}
	if err := rec.write(ctx, r.Client, repository); err != nil {
		return o, err
	}
	if len(created) > 0 {
		r.scopes.set(repository, tree, rec)
	}
	o.keepForFailures()
	deleteAll(ctx, to, &o, measure)
	f.unmade = o.unmade
	return o, nil
}

// resolvePending records the objects that an earlier pass may have created, if it has. A request that was not answered
// may be executed later, even after this pass has created the object and another one has deleted it. So an object stays
// pending as long as that can happen, unless another client has created it.
func (r *Repositories) resolvePending(
	ctx context.Context, f *followed, rec *record, trees map[string]bool,
	live map[inventory.ID]*unstructured.Unstructured,
) error {
	for id := range rec.pending {
		isOver := f.areOver(id, time.Now())
		object := live[id]
		if !isOver && (object == nil || rec.created[object.GetUID()]) {
			continue // an event will announce the object if it is created
		}
		uid, exists, err := r.Cluster.createdBySync(ctx, id, trees)
		if err != nil {
			return err
		}
		if uid != "" {
			rec.created[uid] = true
		}
		if isOver || exists && uid == "" {
			delete(rec.pending, id)
			delete(f.unanswered, id)
		}
	}
	return nil
}

// forgetGone removes the UIDs of objects that do not exist any more.
func (r *record) forgetGone(live map[inventory.ID]*unstructured.Unstructured) {
	known := r.created
	r.created = make(map[types.UID]bool, len(known))
	for _, object := range live {
		if known[object.GetUID()] {
			r.created[object.GetUID()] = true
		}
	}
}

// applyAll applies the objects of a plan, step by step. After a step it holds what needs the objects that failed, or
// for which the time of the step did not suffice. It returns the objects that it created.
func applyAll(
	ctx context.Context, to writer, o *outcome, measure measure,
) []*unstructured.Unstructured {
	if len(o.Applies) > 0 {
		defer measure(phaseApply)()
	}
	var mu sync.Mutex
	var created []*unstructured.Unstructured
	o.unanswered = map[inventory.ID]bool{}
	apply := func(change inventory.Apply) error {
		counted, sent := patch.CountRequests(ctx)
		object, err := to.apply(counted, change)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			if change.Live == nil && patch.MayHappen(err, sent()) {
				o.unanswered[declared(change)] = true
			}
			return err
		}
		o.stored = append(o.stored, stored{change.Declared, object})
		if change.Live == nil {
			created = append(created, object)
		}
		return nil
	}
	for left := o.Applies; len(left) > 0; {
		end := slices.IndexFunc(left, func(change inventory.Apply) bool { return change.Step() != left[0].Step() })
		if end < 0 {
			end = len(left)
		}
		failed, waiting := each(ctx, o, left[:end], declared, apply)
		o.Held = append(o.Held, waiting...)
		left = o.Hold(left[end:], slices.Concat(failed, waiting))
	}
	o.applied = len(o.stored)
	slices.SortFunc(o.failures, byID)
	return created
}

func declared(change inventory.Apply) inventory.ID { return render.IDOf(change.Declared) }

func byID(a, b failure) int { return strings.Compare(a.String(), b.String()) }

// keepForFailures leaves out the deletions that wait for what is not applied: what is deleted may be replaced by it.
// Those who may change one object of a tree may make it fail, which must not keep grants in force elsewhere. So a
// namespace or policyspace keeps what it needs until it has moved, and nothing if it does not move. A namespace that is
// not created has no users, and may be the new name of one that is to be deleted: unless a quota lacks the room that
// the deletion gives. A namespace that is not deleted stays in its policyspaces, and loses the grants that the commit
// revokes.
func (o *outcome) keepForFailures() {
	failed, lacksRoom := map[inventory.ID]bool{}, map[inventory.ID]bool{}
	for _, f := range o.failures {
		denials := codes.Find(f.err.Error())
		failed[f.ID] = true
		lacksRoom[f.ID] = slices.Contains(denials, codes.QuotaExceeded) || slices.Contains(denials, codes.CreatorQuota)
	}
	waiting := slices.Clone(o.Held)
	for _, c := range o.Conflicts {
		failed[c.ID] = true
		change := c.Apply
		if !c.IsOwn && inventory.PhaseOf(c.GroupKind) != inventory.Namespaces {
			change.Live = nil // what others have made of it must not keep anything
		}
		waiting = append(waiting, change)
	}
	for _, a := range o.Applies {
		if id := declared(a); failed[id] && (a.Live != nil || !lacksRoom[id]) {
			waiting = append(waiting, a)
		}
	}
	keepsAll := func(a inventory.Apply) bool {
		isCluster := inventory.PhaseOf(declared(a).GroupKind) == inventory.Cluster
		return isCluster && inventory.BoundRoles(a.Declared) == nil
	}
	if slices.ContainsFunc(waiting, keepsAll) {
		o.Deletes, o.Releases = nil, nil
		return
	}
	var kept []*unstructured.Unstructured
	isNeeded := o.neededBy(waiting)
	o.Deletes = slices.DeleteFunc(o.Deletes, func(object *unstructured.Unstructured) bool {
		if !isNeeded(object) {
			return false
		}
		kept = append(kept, object)
		return true
	})
	for _, a := range waiting {
		kept = append(kept, a.Live)
	}
	o.keepBoundRoles(waiting, kept)
	o.keepUsedSpaces()
}

// keepBoundRoles leaves out the deletions of the ClusterRoles that templates bind which stay as they are, and of the
// operator's permissions to bind these, or those of which the new permission is not given.
func (o *outcome) keepBoundRoles(waiting []inventory.Apply, staying []*unstructured.Unstructured) {
	bound, permitted := map[string]bool{}, map[string]bool{}
	for _, template := range staying {
		for _, name := range inventory.BoundBy(template) {
			bound[name], permitted[name] = true, true
		}
	}
	for _, a := range waiting {
		for _, name := range inventory.BoundRoles(a.Declared) {
			permitted[name] = true
		}
	}
	o.Deletes = slices.DeleteFunc(o.Deletes, func(object *unstructured.Unstructured) bool {
		isPermitted := func(name string) bool { return permitted[name] }
		return object.GetKind() == "ClusterRole" && bound[object.GetName()] ||
			slices.ContainsFunc(inventory.BoundRoles(object), isPermitted)
	})
}

// keepUsedSpaces leaves out the deletions of policyspaces in which namespaces are after the applies.
func (o *outcome) keepUsedSpaces() {
	applied := make([]*unstructured.Unstructured, 0, len(o.stored))
	for _, one := range o.stored {
		applied = append(applied, one.object)
	}
	o.KeepUsedSpaces(applied)
}

// neededBy returns a function that reports whether changes that were not made need an object that is to be deleted.
// What a policyspace is needed for is up to Plan.KeepUsedSpaces.
func (o *outcome) neededBy(waiting []inventory.Apply) func(*unstructured.Unstructured) bool {
	createsNamespaces, lineages, contents := false, map[string]bool{}, inventory.Contents(waiting)
	for _, a := range waiting {
		if a.Live == nil && inventory.PhaseOf(declared(a).GroupKind) == inventory.Namespaces {
			createsNamespaces = true
		}
		if !a.Moves() {
			continue
		}
		for _, name := range o.LiveLineage(a.Live) {
			lineages[name] = true
		}
	}
	return func(object *unstructured.Unstructured) bool {
		switch inventory.PhaseOf(render.IDOf(object).GroupKind) {
		case inventory.Namespaces:
			return createsNamespaces
		case inventory.Templates:
			return lineages[object.GetName()] || inventory.HasContent(object, contents)
		case inventory.Cluster, inventory.Spaces:
		}
		return false
	}
}

// deleteAll deletes the objects of a plan that the tree no longer declares, phase by phase. A namespace that cannot be
// deleted keeps its policyspaces and their templates, on which its safety may depend. One that cannot be released keeps
// only its policyspaces: it was to lose what the templates give it. What others have is deleted.
func deleteAll(ctx context.Context, to writer, o *outcome, measure measure) {
	if len(o.Releases)+len(o.Deletes) > 0 {
		defer measure(phasePrune)()
	}
	stays, needed := map[inventory.ID]bool{}, map[string]bool{}
	isStaying := func(object *unstructured.Unstructured) bool {
		id := render.IDOf(object)
		return stays[id] || inventory.PhaseOf(id.GroupKind) == inventory.Templates && needed[id.Name]
	}
	remove := func(
		objects []*unstructured.Unstructured, do func(context.Context, *unstructured.Unstructured) error,
	) (left []*unstructured.Unstructured) {
		failed, waiting := each(ctx, o, objects, render.IDOf, func(object *unstructured.Unstructured) error {
			return do(ctx, object)
		})
		left = slices.Concat(failed, waiting)
		for _, object := range left {
			stays[render.IDOf(object)] = true
		}
		o.deleted += len(objects) - len(left)
		return left
	}
	remove(o.Releases, to.release)
	for _, phase := range slices.Backward(inventory.Phases) {
		if phase == inventory.Spaces && len(stays) > 0 {
			o.Deletes = slices.DeleteFunc(o.Deletes, isStaying)
			o.Releases = slices.DeleteFunc(o.Releases, isStaying)
			o.keepUsedSpaces()
		}
		var objects []*unstructured.Unstructured
		for _, object := range o.Deletes {
			if inventory.PhaseOf(render.IDOf(object).GroupKind) == phase {
				objects = append(objects, object)
			}
		}
		for _, object := range remove(objects, to.delete) {
			for _, name := range o.LiveLineage(object) {
				needed[name] = true
			}
		}
	}
	slices.SortFunc(o.failures, byID)
}

// each calls do for the changes of a step, several at a time, until stepTime has passed: for those first that were
// tried least often. It returns, and notes in the outcome, those that failed and those that it did not call do for. It
// does all that also after ctx has ended.
func each[T any](
	ctx context.Context, o *outcome, changes []T, idOf func(T) inventory.ID, do func(T) error,
) (failed, waiting []T) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer stop()
	changes = slices.SortedStableFunc(slices.Values(changes), func(a, b T) int {
		return cmp.Compare(o.unmade[idOf(a)], o.unmade[idOf(b)])
	})
	errs, isDone := make([]error, len(changes)), make([]bool, len(changes))
	workqueue.ParallelizeUntil(ctx, writes, len(changes), func(i int) {
		errs[i], isDone[i] = do(changes[i]), true
	})
	for i, change := range changes {
		id := idOf(change)
		switch {
		case !isDone[i]:
			o.remaining++
			waiting = append(waiting, change)
		case errs[i] != nil:
			o.unmade[id]++
			o.failures = append(o.failures, failure{id, errs[i]})
			failed = append(failed, change)
		default:
			delete(o.unmade, id)
		}
	}
	return failed, waiting
}
