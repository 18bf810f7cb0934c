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

// Applier carries out plans. Answers come back as metadata: nobody reads the rest.
type Applier struct {
	client metadata.Interface
	mapper meta.RESTMapper
	slots  chan struct{}
	yield  *Yield
}

// NewApplier returns an applier that has at most so many writes under way, those in all namespaces taken together. Each
// of them waits for yield; a nil one has nothing to wait for.
func NewApplier(client metadata.Interface, mapper meta.RESTMapper, writes int, yield *Yield) *Applier {
	return &Applier{client: client, mapper: mapper, slots: make(chan struct{}, writes), yield: yield}
}

// Outcome is what became of a change that needed a write.
type Outcome struct {
	Change
	// Written is the object's metadata after the write; nil after a deletion or a failure.
	Written *metav1.PartialObjectMetadata
	// Replaced objects were deleted and created anew, because they could not be changed in place.
	Replaced bool
	// Failure is nil when the write succeeded.
	Failure *Failure
}

// Result is what became of a plan.
type Result struct {
	Outcomes []Outcome
}

// NamespaceGone tells whether the namespace is deleted or being deleted, so that nothing failed that mattered.
func (r Result) NamespaceGone() bool {
	for _, outcome := range r.Outcomes {
		if outcome.Failure != nil && outcome.Failure.NamespaceGone {
			return true
		}
	}
	return false
}

// RetryAfter returns the longest wait that the API server asked for, or zero.
func (r Result) RetryAfter() time.Duration {
	var longest time.Duration
	for _, outcome := range r.Outcomes {
		if outcome.Failure != nil {
			longest = max(longest, outcome.Failure.RetryAfter)
		}
	}
	return longest
}

// Apply writes what the plan says: first what is declared, all at once, then the deletions. An object stays for now if
// one of its kind and template could not be applied: it may be what that one was to replace.
func (a *Applier) Apply(ctx context.Context, plan Plan) Result {
	var applies, prunes []Change
	for _, change := range plan.Changes {
		switch change.Action {
		case Create, Configure, Unknown:
			applies = append(applies, change)
		case Prune:
			prunes = append(prunes, change)
		case Unchanged, LeaveAlone:
		}
	}
	namespace := plan.Namespace.Name
	result := Result{Outcomes: a.each(ctx, applies, func(change Change) Outcome { return a.apply(ctx, namespace, change) })}
	if result.NamespaceGone() {
		return result
	}
	type group struct {
		template string
		kind     schema.GroupKind
	}
	failed := map[group]bool{}
	failedKinds := map[schema.GroupKind]bool{}
	for _, outcome := range result.Outcomes {
		if outcome.Failure != nil {
			failed[group{outcome.Template, outcome.Kind.GroupKind()}] = true
			failedKinds[outcome.Kind.GroupKind()] = true
		}
	}
	var safe []Change
	for _, change := range prunes {
		kind := change.Kind.GroupKind()
		if change.Undeclared && failedKinds[kind] {
			continue // it may stand for what could not be applied
		}
		if !failed[group{change.Template, kind}] {
			safe = append(safe, change)
		}
	}
	result.Outcomes = append(result.Outcomes, a.each(ctx, safe, func(change Change) Outcome { return a.prune(ctx, namespace, change) })...)
	return result
}

// each runs do for all changes, some at a time, and returns the outcomes in order.
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
			outcome.Written, err = create(ctx, objects, change)
		} else {
			outcome.Written, err = patch(ctx, objects, change.Declared, options{force: true, books: booksOf(change.Observed)})
		}
	}
	if apierrors.IsInvalid(err) && (change.Action == Configure || change.Occupied) {
		outcome.Written, err = replace(ctx, objects, change, err)
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

// create applies an object for the first time. It does not force: where somebody else's object stands in the way, the
// answer says so, and the object is marked as adopted in the very write that takes it over.
func create(ctx context.Context, objects metadata.ResourceInterface, change Change) (*metav1.PartialObjectMetadata, error) {
	written, err := patch(ctx, objects, change.Declared, options{})
	if apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return takeOver(ctx, objects, change)
	}
	if err != nil || !shared(written) || change.Lost != nil && change.Lost.UID == written.UID {
		return written, err
	}
	return patch(ctx, objects, change.Declared, options{force: true, books: books{adopted: true, unowned: booksOf(written).unowned}})
}

// takeOver forces an object on one that is in its place: somebody else's, or the lost one with other contents.
func takeOver(ctx context.Context, objects metadata.ResourceInterface, change Change) (*metav1.PartialObjectMetadata, error) {
	mark := options{force: true, books: books{adopted: true}}
	if change.Lost != nil {
		// A list of one needs no right to get.
		there, err := objects.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + change.Name})
		if err != nil {
			return nil, err
		}
		mark.adopted = !slices.ContainsFunc(there.Items, func(o metav1.PartialObjectMetadata) bool { return o.UID == change.Lost.UID })
	}
	return patch(ctx, objects, change.Declared, mark)
}

// shared tells whether an object has fields of others: right after its creation it has not.
func shared(object *metav1.PartialObjectMetadata) bool {
	for i := range object.ManagedFields {
		if entry := &object.ManagedFields[i]; !IsOwnEntry(entry) && entry.Subresource == "" {
			return true
		}
	}
	return false
}

type options struct {
	force, dryRun bool
	books
}

// patch applies an object. Right after that this project owns whatever has an owner: what it does not own then is
// written down, with a second write where that is news.
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
		o.unowned = now
		return send(ctx, objects, object, o)
	}
	return written, nil
}

func send(ctx context.Context, objects metadata.ResourceInterface, object *Object, o options) (*metav1.PartialObjectMetadata, error) {
	body, err := object.body(o.books)
	if err != nil {
		return nil, err
	}
	patchOptions := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager, Force: &o.force}
	if o.dryRun {
		patchOptions.DryRun = []string{metav1.DryRunAll}
	}
	return objects.Patch(ctx, object.GetName(), types.ApplyPatchType, body, patchOptions)
}

func (a *Applier) prune(ctx context.Context, namespace string, change Change) Outcome {
	outcome := Outcome{Change: change}
	objects, err := a.resource(change.Kind, namespace)
	if err == nil {
		err = remove(ctx, objects, change.Observed)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		outcome.Failure = failure(err, namespace)
	}
	return outcome
}

// remove deletes the very object that was observed, not one that took its name since.
func remove(ctx context.Context, objects metadata.ResourceInterface, observed *metav1.PartialObjectMetadata) error {
	background := metav1.DeletePropagationBackground
	return objects.Delete(ctx, observed.Name, metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &observed.UID},
		PropagationPolicy: &background,
	})
}
