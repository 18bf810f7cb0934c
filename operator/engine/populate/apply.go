package populate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Applier carries out plans. It asks for metadata only in the answers.
type Applier struct {
	client metadata.Interface
	mapper meta.RESTMapper
	slots  chan struct{}
	yield  *Yield
}

// NewApplier returns an applier that makes at most that many writes at a time, in all namespaces together. Each write
// waits for yield unless that is nil.
func NewApplier(client metadata.Interface, mapper meta.RESTMapper, writes int, yield *Yield) *Applier {
	return &Applier{client: client, mapper: mapper, slots: make(chan struct{}, writes), yield: yield}
}

// Outcome is the result of a change that needed a write.
type Outcome struct {
	Change
	// Written is the object's metadata after the last write that succeeded; nil after a deletion or if none did.
	Written *metav1.PartialObjectMetadata
	// Created objects did not exist before.
	Created bool
	// Replaced objects were deleted and created anew, because they could not be changed in place.
	Replaced bool
	// Deleted objects were deleted in the API server, although the change may have failed.
	Deleted bool
	// MaybeDeleted says that a deletion was asked for and the answer is not known.
	MaybeDeleted bool
	// Failure is nil when the change succeeded.
	Failure *Failure
}

// Result is the result of a plan.
type Result struct {
	Outcomes []Outcome
}

// NamespaceGone reports whether the namespace is deleted or being deleted, so that failures do not matter.
func (r Result) NamespaceGone() bool {
	for _, outcome := range r.Outcomes {
		if outcome.Failure != nil && outcome.Failure.NamespaceGone {
			return true
		}
	}
	return false
}

// RetryAfter returns how long to wait before the next try, as the API server or an obstacle demands it, or zero.
func (r Result) RetryAfter() time.Duration {
	var longest time.Duration
	for _, outcome := range r.Outcomes {
		if outcome.Failure != nil {
			longest = max(longest, outcome.Failure.RetryAfter)
		}
	}
	return longest
}

// Apply carries out a plan in four steps: RoleBindings that must not meet a changed Role are deleted, everything that
// does not wait for a Role is applied, then the RoleBindings that do, and last come the deletions. It calls write with
// the namespace's new seals before it deletes an object that they name.
func (a *Applier) Apply(ctx context.Context, plan Plan, write WriteExisting) Result {
	var revoked, first, waiting, prunes []Change
	roles := rolesOf(plan)
	for _, change := range plan.Changes {
		switch change.Action {
		case Create, Configure, Unknown:
			if roles.waits(change) {
				waiting = append(waiting, change)
			} else {
				first = append(first, change)
			}
		case Prune, Empty:
			if change.Revoked {
				revoked = append(revoked, change)
			} else {
				prunes = append(prunes, change)
			}
		case Unchanged, LeaveAlone:
		}
	}
	p := &pass{Applier: a, namespace: plan.Namespace.Name, existing: newExistingStore(plan, write)}
	result := Result{Outcomes: p.pruneAll(ctx, revoked)}
	obstacle := revokeObstacle(result.Outcomes)
	applied := a.each(ctx, first, func(change Change) Outcome {
		if obstacle != nil && change.Kind.GroupKind() == roleKind {
			return Outcome{Change: change, Failure: obstacle}
		}
		return p.apply(ctx, change)
	})
	result.Outcomes = append(result.Outcomes, applied...)
	if result.NamespaceGone() {
		return result
	}
	roles.record(applied)
	result.Outcomes = append(result.Outcomes, a.each(ctx, waiting, func(change Change) Outcome {
		if obstacle := roles.obstacle(change); obstacle != nil {
			return Outcome{Change: change, Failure: obstacle}
		}
		return p.apply(ctx, change)
	})...)
	for _, change := range roles.unsafeBindings(plan) {
		result.takeAway(p.takeAway(ctx, change, roles.obstacle(change)))
	}
	result.Outcomes = append(result.Outcomes, p.pruneAll(ctx, allowedPrunes(prunes, result.Outcomes))...)
	return result
}

// pass carries out the changes of one plan.
type pass struct {
	*Applier
	namespace string
	existing  *existingStore
}

// revokeObstacle returns why Roles must not change yet, or nil: a RoleBinding that was to be deleted before still grants.
func revokeObstacle(outcomes []Outcome) *Failure {
	for _, outcome := range outcomes {
		if outcome.Failure != nil && outcome.Failure.Reason != ReasonHeldByFinalizer {
			return &Failure{
				Reason: ReasonNotRevoked,
				err:    fmt.Errorf("waits until %s is deleted, which may bind it: %w", outcome.ID(), outcome.Failure),
			}
		}
	}
	return nil
}

// safe returns the deletions that may be carried out. An object stays for now if another one of its kind could not be
// applied in the namespace: that one may be what replaces it. Rights do not stay because of a failure that a user of
// the namespace can bring about.
func allowedPrunes(prunes []Change, outcomes []Outcome) []Change {
	failed, failedNotByUser := map[schema.GroupKind]bool{}, map[schema.GroupKind]bool{}
	for _, outcome := range outcomes {
		if outcome.Failure != nil && !outcome.Deletes() {
			kind := outcome.Kind.GroupKind()
			failed[kind] = true
			failedNotByUser[kind] = failedNotByUser[kind] || !outcome.Failure.byUser()
		}
	}
	return slices.DeleteFunc(slices.Clone(prunes), func(change Change) bool {
		kind := change.Kind.GroupKind()
		return failedNotByUser[kind] || failed[kind] && (change.Undeclared || !isRBAC(kind))
	})
}

// takeAway replaces the outcome of a RoleBinding that was withheld, or adds one.
func (r *Result) takeAway(outcome Outcome) {
	for i := range r.Outcomes {
		if r.Outcomes[i].ID() == outcome.ID() {
			r.Outcomes[i] = outcome
			return
		}
	}
	r.Outcomes = append(r.Outcomes, outcome)
}

// takeAway deletes a RoleBinding that is declared, because its Role is not as declared.
func (p *pass) takeAway(ctx context.Context, change Change, obstacle *Failure) Outcome {
	outcome := Outcome{Change: change}
	objects, err := p.resource(change.Kind, p.namespace)
	if err == nil {
		err = p.existing.remove(ctx, change)
	}
	if err == nil {
		err = revoke(ctx, objects, change)
		outcome.MaybeDeleted = unanswered(err)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		outcome.Failure = failure(err, p.namespace)
		return outcome
	}
	outcome.Deleted = true
	outcome.Failure = &Failure{
		Reason: obstacle.Reason, err: fmt.Errorf("deleted until its Role can be applied: %w", obstacle),
	}
	return outcome
}

// each runs do for all changes concurrently and returns the outcomes in the order of the changes.
func (a *Applier) each(ctx context.Context, changes []Change, do func(Change) Outcome) []Outcome {
	outcomes := make([]Outcome, len(changes))
	var wait sync.WaitGroup
	for i, change := range changes {
		a.slots <- struct{}{}
		if a.yield != nil {
			a.yield.Wait(ctx)
		}
		wait.Go(func() {
			defer func() { <-a.slots }()
			outcomes[i] = do(change)
		})
	}
	wait.Wait()
	return outcomes
}

func (p *pass) apply(ctx context.Context, change Change) Outcome {
	outcome := Outcome{Change: change}
	if change.Err != nil {
		outcome.Failure = failure(change.Err, p.namespace)
		return outcome
	}
	objects, err := p.resource(change.Kind, p.namespace)
	if err == nil {
		if change.Action == Create {
			outcome.Written, outcome.Created, err = create(ctx, objects, change)
		} else {
			outcome.Written,
				err = patch(ctx, objects, change.Declared,
				options{existing: change.Observed, record: recordOf(change.Observed)})
		}
	}
	if apierrors.IsInvalid(err) && (change.Action == Configure || change.Occupied) {
		outcome, err = p.replace(ctx, objects, change, err)
	}
	if err != nil {
		outcome.Failure = failure(err, p.namespace)
	}
	return outcome
}

// resource returns the client for a kind in a namespace.
func (a *Applier) resource(kind schema.GroupVersionKind, namespace string) (metadata.ResourceInterface, error) {
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil, &Failure{Reason: ReasonClusterScoped, err: fmt.Errorf(
			"%s is not namespace-scoped: take it out of the template", kind.GroupKind())}
	}
	return a.client.Resource(mapping.Resource).Namespace(namespace), nil
}

// create applies an object that does not exist yet, or takes over one that does. Either is one write, so that an object
// of another client never looks like one that this project created.
func create(
	ctx context.Context, objects metadata.ResourceInterface, change Change,
) (written *metav1.PartialObjectMetadata, created bool, err error) {
	existing := change.Observed
	if existing == nil {
		written, err = patch(ctx, objects, change.Declared, options{})
		if !apierrors.IsConflict(err) {
			return written, err == nil, err
		}
		conflict := err
		if existing, err = find(ctx, objects, change.Name); err != nil {
			return nil, false, err
		}
		if existing == nil {
			return nil, false, conflict
		}
	}
	taken := options{existing: existing, record: recordOf(existing)}
	// The object may be this project's all the same: the answer to its creation was lost, or its label was taken away.
	taken.adopted = !Ours(existing) && (change.Lost == nil || change.Lost.UID != existing.UID)
	written, err = patch(ctx, objects, change.Declared, taken)
	return written, false, err
}

// find returns the object of a name, or nil if there is none. A list of one needs no right to get.
func find(ctx context.Context, objects metadata.ResourceInterface, name string) (*metav1.PartialObjectMetadata, error) {
	list, err := objects.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

type options struct {
	// existing is the object to apply over. If it is nil, the object must not exist.
	existing *metav1.PartialObjectMetadata
	dryRun   bool
	record
}

// patch applies an object. Fields that this project does not own right after that never have an owner. They are
// recorded on the object, by a second write if that is not what was expected. If only the second write fails, patch
// returns the object as the first one left it, and the error.
func patch(
	ctx context.Context, objects metadata.ResourceInterface, object *Object, o options,
) (*metav1.PartialObjectMetadata, error) {
	o.unowned = expectUnowned(object, o.unowned)
	written, err := send(ctx, objects, object, o)
	if err != nil || o.dryRun || ownEntry(written) == nil {
		return written, err
	}
	unowned, err := lostFields(object.Object, ownEntry(written))
	if err != nil {
		return written, err
	}
	now := joinFields(unowned)
	if now == o.unowned {
		return written, nil
	}
	o.unowned, o.existing = now, written
	recorded, err := send(ctx, objects, object, o)
	if err != nil {
		return written, err
	}
	return recorded, nil
}

// send makes one apply request.
func send(
	ctx context.Context, objects metadata.ResourceInterface, object *Object, o options,
) (*metav1.PartialObjectMetadata, error) {
	request := func(p precondition) (*metav1.PartialObjectMetadata, error) {
		body, err := object.bodyFor(o.record, p)
		if err != nil {
			return nil, err
		}
		patchOptions := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager, Force: new(true)}
		if o.dryRun {
			patchOptions.DryRun = []string{metav1.DryRunAll}
		}
		return objects.Patch(ctx, object.GetName(), types.ApplyPatchType, body, patchOptions)
	}
	if o.existing == nil {
		return request(precondition{absent: !o.dryRun})
	}
	return asObserved(ctx, objects, o.existing, func(version string) (*metav1.PartialObjectMetadata, error) {
		return request(precondition{uid: o.existing.UID, version: version})
	})
}

// asObserved calls write with the resourceVersion of an object that was observed. A write that arrives after a later
// leader changed the object is refused for it. If the object changed and this process still would decide the same, it
// calls write again without one: a client that never stops writing must not keep an object as that client wants it.
func asObserved[T any](
	ctx context.Context, objects metadata.ResourceInterface, observed *metav1.PartialObjectMetadata,
	write func(version string) (T, error),
) (T, error) {
	written, err := write(observed.ResourceVersion)
	if !apierrors.IsConflict(err) {
		return written, err
	}
	now, lookup := find(ctx, objects, observed.Name)
	switch {
	case lookup != nil:
		return written, lookup
	case now == nil || !SameRecord(observed, now) || !slices.Equal(observed.Finalizers, now.Finalizers):
		return written, err
	}
	return write("")
}

// pruneAll deletes objects. Those of RBAC that a finalizer keeps are emptied, which counts as a failure.
func (p *pass) pruneAll(ctx context.Context, changes []Change) []Outcome {
	if err := p.existing.remove(ctx, changes...); err != nil {
		outcomes := make([]Outcome, 0, len(changes))
		for _, change := range changes {
			outcomes = append(outcomes, Outcome{Change: change, Failure: failure(err, p.namespace)})
		}
		return outcomes
	}
	return p.each(ctx, changes, func(change Change) Outcome { return p.prune(ctx, change) })
}

func (p *pass) prune(ctx context.Context, change Change) Outcome {
	outcome := Outcome{Change: change}
	objects, err := p.resource(change.Kind, p.namespace)
	switch {
	case err != nil:
	case change.Action == Empty:
		_, err = empty(ctx, objects, change)
	case change.Revoked || isRBAC(change.Kind.GroupKind()) && hasFinalizers(change.Observed):
		err = revoke(ctx, objects, change)
	default:
		err = remove(ctx, objects, change.Observed)
	}
	outcome.MaybeDeleted = change.Action == Prune && unanswered(err)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if outcome.Deleted = err == nil && change.Action == Prune; err == nil && isRBAC(change.Kind.GroupKind()) &&
		hasFinalizers(change.Observed) {
		err = finalizerFailure(change)
	}
	if err != nil {
		outcome.Failure = failure(err, p.namespace)
	}
	return outcome
}

// revoke empties an object of RBAC before it deletes it, because a finalizer that was added just now may keep it.
func revoke(ctx context.Context, objects metadata.ResourceInterface, change Change) error {
	emptied, err := empty(ctx, objects, change)
	if err != nil {
		return err
	}
	return remove(ctx, objects, emptied)
}

// empty takes the subjects from a RoleBinding, or the rules from a Role.
func empty(
	ctx context.Context, objects metadata.ResourceInterface, change Change,
) (*metav1.PartialObjectMetadata, error) {
	grants := "subjects"
	if change.Kind.GroupKind() == roleKind {
		grants = "rules"
	}
	return asObserved(ctx, objects, change.Observed, func(version string) (*metav1.PartialObjectMetadata, error) {
		metadata := map[string]any{"uid": change.Observed.UID}
		if version != "" {
			metadata["resourceVersion"] = version
		}
		body, err := json.Marshal(map[string]any{"metadata": metadata, grants: nil})
		if err != nil {
			return nil, err
		}
		return objects.Patch(ctx, change.Name, types.MergePatchType, body,
			metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	})
}

func finalizerFailure(change Change) *Failure {
	return &Failure{Reason: ReasonHeldByFinalizer,
		err: fmt.Errorf("is being deleted and no longer grants anything, but finalizers keep it: remove %s from its metadata.finalizers",
			strings.Join(change.Observed.Finalizers, ", "))}
}

// remove deletes the very object that was observed, not one that took its name since.
func remove(ctx context.Context, objects metadata.ResourceInterface, observed *metav1.PartialObjectMetadata) error {
	background := metav1.DeletePropagationBackground
	_, err := asObserved(ctx, objects, observed, func(version string) (struct{}, error) {
		preconditions := &metav1.Preconditions{UID: &observed.UID}
		if version != "" {
			preconditions.ResourceVersion = &version
		}
		return struct{}{},
			objects.Delete(ctx, observed.Name,
				metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: &background})
	})
	return err
}
