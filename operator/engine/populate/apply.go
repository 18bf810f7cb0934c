package populate

import (
	"context"
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
	// Written is the object's metadata after the write; nil after a deletion or a failure.
	Written *metav1.PartialObjectMetadata
	// Created objects did not exist before.
	Created bool
	// Replaced objects were deleted and created anew, because they could not be changed in place.
	Replaced bool
	// Deleted objects were deleted in the API server, although the change may have failed.
	Deleted bool
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
// does not wait for a Role is applied, then the RoleBindings that do, and last come the deletions.
func (a *Applier) Apply(ctx context.Context, plan Plan) Result {
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
	namespace := plan.Namespace.Name
	apply := func(change Change) Outcome { return a.apply(ctx, namespace, change) }
	prune := func(change Change) Outcome { return a.prune(ctx, namespace, change) }

	result := Result{Outcomes: a.each(ctx, revoked, prune)}
	if obstacle := notRevoked(result.Outcomes); obstacle != nil {
		apply = func(change Change) Outcome {
			if change.Kind.GroupKind() == roleKind {
				return Outcome{Change: change, Failure: obstacle}
			}
			return a.apply(ctx, namespace, change)
		}
	}
	applied := a.each(ctx, first, apply)
	result.Outcomes = append(result.Outcomes, applied...)
	if result.NamespaceGone() {
		return result
	}
	roles.record(applied)
	result.Outcomes = append(result.Outcomes, a.each(ctx, waiting, func(change Change) Outcome {
		if obstacle := roles.obstacle(change); obstacle != nil {
			return Outcome{Change: change, Failure: obstacle}
		}
		return a.apply(ctx, namespace, change)
	})...)
	for _, change := range roles.untenable(plan) {
		result.takeAway(a.takeAway(ctx, namespace, change, roles.obstacle(change)))
	}
	result.Outcomes = append(result.Outcomes, a.each(ctx, safe(prunes, result.Outcomes), prune)...)
	return result
}

// notRevoked returns why Roles must not change yet, or nil: a RoleBinding that was to be deleted before still grants.
func notRevoked(outcomes []Outcome) *Failure {
	for _, outcome := range outcomes {
		if outcome.Failure != nil && outcome.Failure.Reason != ReasonHeld {
			return &Failure{Reason: ReasonNotRevoked, err: fmt.Errorf("waits until %s is deleted, which may bind it: %w", outcome.ID(), outcome.Failure)}
		}
	}
	return nil
}

// safe returns the deletions that may be carried out. An object stays for now if another one of its kind could not be
// applied in the namespace: that one may be what replaces it. Rights do not stay because of a failure that a user of the
// namespace can bring about.
func safe(prunes []Change, outcomes []Outcome) []Change {
	failed, failedForUs := map[schema.GroupKind]bool{}, map[schema.GroupKind]bool{}
	for _, outcome := range outcomes {
		if outcome.Failure != nil && !outcome.Deletes() {
			kind := outcome.Kind.GroupKind()
			failed[kind] = true
			failedForUs[kind] = failedForUs[kind] || !outcome.Failure.byUser()
		}
	}
	return slices.DeleteFunc(slices.Clone(prunes), func(change Change) bool {
		kind := change.Kind.GroupKind()
		return failedForUs[kind] || failed[kind] && (change.Undeclared || !isRBAC(kind))
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
func (a *Applier) takeAway(ctx context.Context, namespace string, change Change, obstacle *Failure) Outcome {
	outcome := Outcome{Change: change}
	objects, err := a.resource(change.Kind, namespace)
	if err == nil {
		err = revoke(ctx, objects, change)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		outcome.Failure = failure(err, namespace)
		return outcome
	}
	outcome.Deleted = true
	outcome.Failure = &Failure{Reason: obstacle.Reason, err: fmt.Errorf("deleted until its Role can be applied: %w", obstacle)}
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

func (a *Applier) apply(ctx context.Context, namespace string, change Change) Outcome {
	outcome := Outcome{Change: change}
	if change.Err != nil {
		outcome.Failure = failure(change.Err, namespace)
		return outcome
	}
	objects, err := a.resource(change.Kind, namespace)
	if err == nil {
		if change.Action == Create {
			outcome.Written, outcome.Created, err = create(ctx, objects, change)
		} else {
			outcome.Written, err = patch(ctx, objects, change.Declared, options{
				force: true, books: booksOf(change.Observed), precondition: precondition{uid: change.Observed.UID},
			})
		}
	}
	if apierrors.IsInvalid(err) && (change.Action == Configure || change.Occupied) {
		outcome.Written, outcome.Deleted, err = replace(ctx, objects, change, err)
		outcome.Replaced = err == nil
	}
	if err != nil {
		outcome.Failure = failure(err, namespace)
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
func create(ctx context.Context, objects metadata.ResourceInterface, change Change) (written *metav1.PartialObjectMetadata, created bool, err error) {
	existing := change.Observed
	if existing == nil {
		written, err = patch(ctx, objects, change.Declared, options{force: true, precondition: precondition{absent: true}})
		if !apierrors.IsConflict(err) {
			return written, err == nil, err
		}
		if existing, err = find(ctx, objects, change.Name, err); err != nil {
			return nil, false, err
		}
	}
	taken := options{force: true, books: booksOf(existing), precondition: precondition{uid: existing.UID}}
	// The object may be this project's all the same: the answer to its creation was lost, or its label was taken away.
	taken.adopted = !Ours(existing) && (change.Lost == nil || change.Lost.UID != existing.UID)
	written, err = patch(ctx, objects, change.Declared, taken)
	return written, false, err
}

// find returns the object of a name, or conflict if it is gone by now. A list of one needs no right to get.
func find(ctx context.Context, objects metadata.ResourceInterface, name string, conflict error) (*metav1.PartialObjectMetadata, error) {
	list, err := objects.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, conflict
	}
	return &list.Items[0], nil
}

type options struct {
	force, dryRun bool
	books
	precondition
}

// patch applies an object. Fields that this project does not own right after that never have an owner. They are recorded
// on the object, by a second write if the record has to change.
func patch(ctx context.Context, objects metadata.ResourceInterface, object *Object, o options) (*metav1.PartialObjectMetadata, error) {
	written, err := send(ctx, objects, object, o)
	if err != nil || o.dryRun || ownEntry(written) == nil {
		return written, err
	}
	unowned, err := lostFields(object.Object, ownEntry(written))
	if err != nil {
		return nil, err
	}
	if now := strings.Join(unowned, "\n"); now != o.unowned {
		o.unowned, o.precondition = now, precondition{uid: written.UID}
		return send(ctx, objects, object, o)
	}
	return written, nil
}

func send(ctx context.Context, objects metadata.ResourceInterface, object *Object, o options) (*metav1.PartialObjectMetadata, error) {
	body, err := object.bodyFor(o.books, o.precondition)
	if err != nil {
		return nil, err
	}
	patchOptions := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager, Force: &o.force}
	if o.dryRun {
		patchOptions.DryRun = []string{metav1.DryRunAll}
	}
	return objects.Patch(ctx, object.GetName(), types.ApplyPatchType, body, patchOptions)
}

// prune deletes an object. An object of RBAC that a finalizer keeps is emptied, which counts as a failure.
func (a *Applier) prune(ctx context.Context, namespace string, change Change) Outcome {
	outcome := Outcome{Change: change}
	objects, err := a.resource(change.Kind, namespace)
	switch {
	case err != nil:
	case change.Action == Empty:
		err = empty(ctx, objects, change)
	case change.Revoked || isRBAC(change.Kind.GroupKind()) && held(change.Observed):
		err = revoke(ctx, objects, change)
	default:
		err = remove(ctx, objects, change.Observed)
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if outcome.Deleted = err == nil && change.Action == Prune; err == nil && isRBAC(change.Kind.GroupKind()) && held(change.Observed) {
		err = heldFailure(change)
	}
	if err != nil {
		outcome.Failure = failure(err, namespace)
	}
	return outcome
}

// revoke empties an object of RBAC before it deletes it, because a finalizer that was added just now may keep it.
func revoke(ctx context.Context, objects metadata.ResourceInterface, change Change) error {
	if err := empty(ctx, objects, change); err != nil {
		return err
	}
	return remove(ctx, objects, change.Observed)
}

// empty takes the subjects from a RoleBinding, or the rules from a Role.
func empty(ctx context.Context, objects metadata.ResourceInterface, change Change) error {
	grants := "subjects"
	if change.Kind.GroupKind() == roleKind {
		grants = "rules"
	}
	body := fmt.Sprintf(`{"metadata": {"uid": %q}, %q: null}`, change.Observed.UID, grants)
	_, err := objects.Patch(ctx, change.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return err
}

func heldFailure(change Change) *Failure {
	return &Failure{Reason: ReasonHeld, err: fmt.Errorf("is being deleted and no longer grants anything, but finalizers keep it: remove %s from its metadata.finalizers",
		strings.Join(change.Observed.Finalizers, ", "))}
}

// remove deletes the very object that was observed, not one that took its name since.
func remove(ctx context.Context, objects metadata.ResourceInterface, observed *metav1.PartialObjectMetadata) error {
	background := metav1.DeletePropagationBackground
	return objects.Delete(ctx, observed.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &observed.UID},
		PropagationPolicy: &background,
	})
}
