package populate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
)

// Applier carries out plans. It requests that the API server returns only metadata, except for what it applies.
type Applier struct {
	client metadata.Interface
	// objects returns what it applies as the API server stored it.
	objects dynamic.Interface
	mapper  meta.RESTMapperWithContext
	slots   chan struct{}
	yield   *Yield

	mu sync.Mutex
	// mappings are those that the mapper returned, which looks each up in many lists.
	mappings map[schema.GroupVersionKind]*meta.RESTMapping
}

// NewApplier returns an applier that makes at most the given number of writes at the same time, in all namespaces
// together. Each write waits for yield unless yield is nil.
func NewApplier(
	client metadata.Interface, objects dynamic.Interface, mapper meta.RESTMapperWithContext, writes int, yield *Yield,
) *Applier {
	return &Applier{
		client: client, objects: objects, mapper: mapper, slots: make(chan struct{}, writes), yield: yield,
		mappings: map[schema.GroupVersionKind]*meta.RESTMapping{},
	}
}

// Outcome is the result of a change that needed a write.
type Outcome struct {
	Change
	// Written is the object's metadata after the last successful write; nil after a deletion or without such a write.
	Written *metav1.PartialObjectMetadata
	// Created says that the object did not exist before.
	Created bool
	// Replaced says that the object was deleted and recreated, because it could not be changed in place.
	Replaced bool
	// Deleted says that the API server accepted the deletion, although the change may have failed after that.
	Deleted bool
	// MaybeDeleted says that a deletion was requested and its result is unknown.
	MaybeDeleted bool
	// Failure is nil when the change succeeded.
	Failure *Failure
}

// Result is the result of carrying out a plan.
type Result struct {
	Outcomes []Outcome
}

// wrote reports whether a change needed a write.
func (r Result) wrote(change Change) bool {
	return slices.ContainsFunc(r.Outcomes, func(o Outcome) bool {
		return o.ID() == change.ID() && (o.Metadata != nil) == (change.Metadata != nil)
	})
}

// NamespaceGone reports whether the namespace was deleted or is being deleted, so that failures do not matter.
func (r Result) NamespaceGone() bool {
	for _, outcome := range r.Outcomes {
		if outcome.Failure != nil && outcome.Failure.NamespaceGone {
			return true
		}
	}
	return false
}

// RetryAfter returns the longest time that a failure asks to wait before the next try, or zero.
func (r Result) RetryAfter() time.Duration {
	var longest time.Duration
	for _, outcome := range r.Outcomes {
		if outcome.Failure != nil {
			longest = max(longest, outcome.Failure.RetryAfter)
		}
	}
	return longest
}

// Apply carries out a plan in four steps. First it takes subjects from RoleBindings that must not get the rules of a
// changed Role. Then it applies every object that does not wait for a Role, then the RoleBindings that do, and at last
// it prunes. Before it deletes an object that the namespace's ExistingAnnotation lists, it calls write with a value
// that does not.
func (a *Applier) Apply(ctx context.Context, plan Plan, write WriteExisting) Result {
	p := newPass(a, plan, write)
	plan.Changes = slices.Clone(plan.Changes)
	result, roles := p.applyDeclared(ctx, plan)
	if result.NamespaceGone() {
		return result
	}
	for _, change := range roles.unsafeBindings(plan) {
		result.replaceOutcome(p.revokeDeclared(ctx, change, roles.obstacle(change)))
	}
	prunes := slices.DeleteFunc(slices.Clone(plan.Changes), func(change Change) bool {
		return change.Metadata != nil || !change.Deletes() // see ApplyMetadata
	})
	result.Outcomes = append(result.Outcomes, p.pruneAll(ctx, allowedPrunes(prunes, result.Outcomes))...)
	return result
}

// applyDeclared carries out the first three steps of Apply. It stores in the plan's changes what it wrote to
// RoleBindings before.
func (p *pass) applyDeclared(ctx context.Context, plan Plan) (Result, roles) {
	obstacles := p.narrowBindings(ctx, plan)
	var first, waiting []Change
	roles := rolesOf(plan)
	for _, change := range plan.Changes {
		isApplied := slices.Contains([]Action{Create, Configure, Unknown}, change.Action)
		switch {
		case change.Metadata != nil || !isApplied: // see ApplyMetadata
		case roles.mustWait(change):
			waiting = append(waiting, change)
		default:
			first = append(first, change)
		}
	}
	result := Result{p.each(ctx, first, func(change Change) Outcome {
		if obstacle := obstacles[change.ID()]; obstacle != nil && change.Kind.GroupKind() == roleKind {
			return Outcome{Change: change, Failure: obstacle}
		}
		return p.apply(ctx, change)
	})}
	if result.NamespaceGone() {
		return result, roles
	}
	roles.addOutcomes(result.Outcomes)
	result.Outcomes = append(result.Outcomes, p.each(ctx, waiting, func(change Change) Outcome {
		if obstacle := roles.obstacle(change); obstacle != nil {
			return Outcome{Change: change, Failure: obstacle}
		}
		return p.apply(ctx, change)
	})...)
	return result, roles
}

// pass carries out the changes of one plan.
type pass struct {
	*Applier
	namespace string
	// isHeld says that users' writes into the namespace wait.
	isHeld   bool
	existing *existingStore
	// declared are the objects that the plan declares.
	declared map[ObjectID]*Object
	// changed are the objects that the plan applies or deletes.
	changed map[ObjectID]bool
}

func newPass(a *Applier, plan Plan, write WriteExisting) *pass {
	p := &pass{
		Applier: a, namespace: plan.Namespace.Name, isHeld: initialize.Initializing(plan.Namespace),
		existing: newExistingStore(plan, write),
		declared: map[ObjectID]*Object{}, changed: map[ObjectID]bool{},
	}
	for i := range plan.Objects {
		p.declared[plan.Objects[i].ID()] = &plan.Objects[i]
	}
	for _, change := range plan.Changes {
		if change.Deletes() || change.Action == Create || change.Action == Configure {
			p.changed[change.ID()] = true
		}
	}
	return p
}

// allowedPrunes returns the deletions that may be carried out. An object is not pruned yet if another object of its
// kind could not be applied in the namespace, because that object may be its replacement. Users of the namespace must
// not keep rights by such a failure. So RBAC objects are pruned all the same if users can cause the failure, and
// undeclared ones if only they can. Copies whose source is lost have no replacement.
func allowedPrunes(prunes []Change, outcomes []Outcome) []Change {
	failures := map[schema.GroupKind][]*Failure{}
	for _, outcome := range outcomes {
		// An altered object was applied.
		if outcome.Failure != nil && outcome.Failure.Reason != ReasonAltered && !outcome.Deletes() {
			kind := outcome.Kind.GroupKind()
			failures[kind] = append(failures[kind], outcome.Failure)
		}
	}
	return slices.DeleteFunc(slices.Clone(prunes), func(change Change) bool {
		kind := change.Kind.GroupKind()
		switch {
		case change.SourceLost != nil:
			return false
		case change.Undeclared:
			return slices.ContainsFunc(failures[kind], func(f *Failure) bool { return !f.IsLocal() })
		case !isRBAC(kind):
			return len(failures[kind]) > 0
		}
		return slices.ContainsFunc(failures[kind], func(f *Failure) bool { return !f.byUser() })
	})
}

// replaceOutcome replaces the outcome of the same object, or adds one.
func (r *Result) replaceOutcome(outcome Outcome) {
	for i := range r.Outcomes {
		if r.Outcomes[i].ID() == outcome.ID() {
			r.Outcomes[i] = outcome
			return
		}
	}
	r.Outcomes = append(r.Outcomes, outcome)
}

// revokeDeclared deletes a RoleBinding that is declared, because its Role is not as declared.
func (p *pass) revokeDeclared(ctx context.Context, change Change, obstacle *Failure) Outcome {
	outcome := Outcome{Change: change}
	objects, err := p.resource(ctx, change.Kind, p.namespace)
	if err == nil {
		err = p.existing.remove(ctx, change)
	}
	if err == nil {
		err = revoke(ctx, objects, change)
		outcome.MaybeDeleted = unanswered(err)
	}
	if err != nil && !isGone(err) {
		outcome.Failure = NewFailure(err, p.namespace)
		return outcome
	}
	outcome.Deleted = true
	outcome.Failure = failuref(obstacle.Reason, "deleted until its Role can be applied: %w", obstacle)
	return outcome
}

// each runs do for all changes concurrently and returns the outcomes in the order of the changes.
func (a *Applier) each(ctx context.Context, changes []Change, do func(Change) Outcome) []Outcome {
	outcomes := make([]Outcome, len(changes))
	var wait sync.WaitGroup
	for i, change := range changes {
		a.slots <- struct{}{}
		answered := func() {}
		if a.yield != nil {
			answered = a.yield.Bulk(ctx)
		}
		wait.Go(func() {
			defer func() { answered(); <-a.slots }()
			outcomes[i] = do(change)
		})
	}
	wait.Wait()
	return outcomes
}

func (p *pass) apply(ctx context.Context, change Change) Outcome {
	outcome := Outcome{Change: change}
	if change.Err != nil {
		outcome.Failure = NewFailure(change.Err, p.namespace)
		return outcome
	}
	objects, err := p.resource(ctx, change.Kind, p.namespace)
	if err == nil && isEndingRole(change) {
		if _, err = empty(ctx, objects, change); err == nil {
			outcome.Failure = finalizerFailure(change)
			return outcome
		}
	}
	if err == nil {
		err = p.checkBindings(ctx, change)
	}
	if err == nil {
		if change.Action == Create {
			outcome.Written, outcome.Created, err = create(ctx, objects, change)
		} else {
			outcome.Written,
				err = patch(ctx, objects, change.Declared,
				options{existing: change.Observed, record: recordOf(change.Observed)})
		}
	}
	isInTheWay := false
	if existing := refused(ctx, objects, change, err); existing != nil {
		refusal, trial := err, try(ctx, objects, change)
		isValid := trial == nil || exceedsQuota(trial)
		isInTheWay = isValid && isChangedByOthers(existing, refusal)
		switch {
		case MayBeMissing(change, trial) &&
			(change.Action == Configure || change.Occupied || change.replacesOwn(existing)):
			change.Observed = existing
			outcome, err = p.replace(ctx, objects, change, refusal)
		case isValid && change.Action == Create:
			if obstacle := MayReplace(change, existing); obstacle != nil {
				err = Refused(change, obstacle, refusal)
			}
		}
	}
	if err != nil {
		outcome.Failure = NewFailure(err, p.namespace).withoutValues(change)
		outcome.Failure.InTheWay = isInTheWay
	}
	return outcome
}

// refused returns the object that exists under the name of a declared one which the API server found to be invalid or
// too large, or nil.
func refused(ctx context.Context, objects resource, change Change, err error) *metav1.PartialObjectMetadata {
	switch {
	case !apierrors.IsInvalid(err) && !isFilled(change.Declared, err):
		return nil
	case change.Action == Configure || change.Occupied:
		return change.Observed
	}
	existing, findErr := find(ctx, objects, change.Name)
	if findErr != nil {
		return nil // only the refusal is known
	}
	return existing
}

// resource is the client for a kind in a namespace.
type resource struct {
	metadata.ResourceInterface
	objects dynamic.ResourceInterface
}

// apply makes an apply request. It returns the metadata of the object, and the object as the API server stored it.
func (r resource) apply(
	ctx context.Context, name string, body []byte, options metav1.PatchOptions,
) (*metav1.PartialObjectMetadata, *unstructured.Unstructured, error) {
	stored, err := r.objects.Patch(ctx, name, types.ApplyPatchType, body, options)
	if err != nil {
		return nil, nil, err
	}
	written := &metav1.PartialObjectMetadata{}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(
		map[string]any{"metadata": stored.Object["metadata"]}, written)
	return written, stored, err
}

func (a *Applier) resource(ctx context.Context, kind schema.GroupVersionKind, namespace string) (resource, error) {
	mapping, err := a.mapping(ctx, kind)
	if err != nil {
		return resource{}, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return resource{}, failuref(ReasonClusterScoped, "%s is not namespace-scoped: remove it from the template",
			kind.GroupKind())
	}
	return resource{
		a.client.Resource(mapping.Resource).Namespace(namespace),
		a.objects.Resource(mapping.Resource).Namespace(namespace),
	}, nil
}

func (a *Applier) mapping(ctx context.Context, kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	a.mu.Lock()
	known := a.mappings[kind]
	a.mu.Unlock()
	if known != nil {
		return known, nil
	}
	mapping, err := a.mapper.RESTMappingWithContext(ctx, kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.mappings[kind] = mapping
	a.mu.Unlock()
	return mapping, nil
}

// create applies an object that does not exist yet, or adopts one that existed before the namespace had it from a
// template. Either is one write, so that an object of another client never looks like an object that nstpl created.
func create(
	ctx context.Context, objects resource, change Change,
) (written *metav1.PartialObjectMetadata, created bool, err error) {
	existing := change.Observed
	if existing == nil {
		written, err = patch(ctx, objects, change.Declared, options{})
		if !apierrors.IsConflict(err) {
			return written, written != nil, err
		}
		conflict := err
		if existing, err = find(ctx, objects, change.Name); err != nil {
			return nil, false, err
		}
		if existing == nil {
			return nil, false, conflict
		}
	}
	written, err = patch(ctx, objects, change.Declared, options{existing: existing, record: change.recordOn(existing)})
	return written, false, err
}

// find returns the object with a name, or nil if it does not exist. It lists, because the operator has no right to get.
func find(ctx context.Context, objects metadata.ResourceInterface, name string) (*metav1.PartialObjectMetadata, error) {
	list, err := objects.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// Grants returns the Roles and RoleBindings of a namespace that no template's label names. What may not be listed is
// left out.
func (a *Applier) Grants(ctx context.Context, namespace string) ([]*metav1.PartialObjectMetadata, error) {
	var found []*metav1.PartialObjectMetadata
	for _, kind := range []schema.GroupKind{roleKind, bindingKind} {
		objects, err := a.resource(ctx, kind.WithVersion(rbacv1.SchemeGroupVersion.Version), namespace)
		if err != nil {
			return nil, err
		}
		list, err := objects.List(ctx, metav1.ListOptions{LabelSelector: "!" + v1alpha1.TemplateNameLabel})
		if apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(kind.WithVersion(rbacv1.SchemeGroupVersion.Version))
			found = append(found, &list.Items[i])
		}
	}
	return found, nil
}

// options say how an object is applied.
type options struct {
	// existing is the object that the apply changes. If it is nil, the object must not exist.
	existing *metav1.PartialObjectMetadata
	dryRun   bool
	record
}

// patch applies an object. Declared fields that nstpl does not own right after the apply never have an owner. The first
// write records on the object the fields that are expected to have none. If others turn out to have none, a second
// write corrects the record. If only the second write fails, or the object is not stored as it is declared, patch
// returns the metadata of what is stored and the error.
func patch(
	ctx context.Context, objects resource, object *Object, o options,
) (*metav1.PartialObjectMetadata, error) {
	o.unowned = expectUnowned(object, o.unowned)
	written, stored, err := send(ctx, objects, object, o)
	if err != nil || o.dryRun || appliedEntry(written) == nil {
		return written, err
	}
	unowned, err := lostFields(object.Object, appliedEntry(written))
	if err != nil {
		return written, err
	}
	actual := joinFields(unowned)
	if actual == o.unowned {
		return written, alteredFailure(object, stored, appliedEntry(written))
	}
	o.unowned, o.existing = actual, written
	recorded, stored, err := send(ctx, objects, object, o)
	if err != nil {
		return written, err
	}
	return recorded, alteredFailure(object, stored, appliedEntry(recorded))
}

// send makes one apply request.
func send(
	ctx context.Context, objects resource, object *Object, o options,
) (written *metav1.PartialObjectMetadata, stored *unstructured.Unstructured, err error) {
	request := func(ctx context.Context, p precondition) (*metav1.PartialObjectMetadata, error) {
		body, err := object.bodyFor(o.record, p)
		if err != nil {
			return nil, err
		}
		patchOptions := metav1.PatchOptions{FieldManager: v1alpha1.FieldManager, Force: new(true)}
		if o.dryRun {
			patchOptions.DryRun = []string{metav1.DryRunAll}
		}
		written, stored, err = objects.apply(ctx, object.GetName(), body, patchOptions)
		return written, err
	}
	if o.existing == nil {
		written, err = request(ctx, precondition{absent: !o.dryRun})
		return written, stored, err
	}
	written, err = asObserved(ctx, objects, o.existing, SameRecord,
		func(ctx context.Context, version string) (*metav1.PartialObjectMetadata, error) {
			return request(ctx, precondition{uid: o.existing.UID, version: version})
		})
	return written, stored, err
}

// pruneAll deletes objects. RBAC objects that have finalizers are emptied too, which counts as a failure as long as
// they exist.
func (p *pass) pruneAll(ctx context.Context, changes []Change) []Outcome {
	if err := p.existing.remove(ctx, changes...); err != nil {
		outcomes := make([]Outcome, 0, len(changes))
		for _, change := range changes {
			outcomes = append(outcomes, Outcome{Change: change, Failure: NewFailure(err, p.namespace)})
		}
		return outcomes
	}
	return p.each(ctx, changes, func(change Change) Outcome { return p.prune(ctx, change) })
}

func (p *pass) prune(ctx context.Context, change Change) Outcome {
	outcome := Outcome{Change: change}
	objects, err := p.resource(ctx, change.Kind, p.namespace)
	switch {
	case err != nil:
	case change.Action == Empty:
		_, err = empty(ctx, objects, change)
	case isRBAC(change.Kind.GroupKind()) && mayResist(change.Observed):
		err = revoke(ctx, objects, change)
	default:
		err = remove(ctx, objects, change.Observed)
	}
	outcome.MaybeDeleted = change.Action == Prune && unanswered(err)
	if isGone(err) {
		err = nil
	}
	if outcome.Deleted = err == nil && change.Action == Prune; err == nil && isRBAC(change.Kind.GroupKind()) &&
		hasFinalizers(change.Observed) {
		err = finalizerFailure(change)
	}
	if err != nil {
		outcome.Failure = NewFailure(err, p.namespace).withoutValues(change)
	}
	return outcome
}

// revoke empties an RBAC object before it deletes it, because a finalizer that was just added may prevent the deletion.
func revoke(ctx context.Context, objects metadata.ResourceInterface, change Change) error {
	emptied, err := empty(ctx, objects, change)
	if err != nil {
		return err
	}
	return remove(ctx, objects, emptied)
}

// mayResist reports whether the deletion of an object may leave it in place: it has finalizers, or a user protects it
// from deletion and may do so again.
func mayResist(object *metav1.PartialObjectMetadata) bool {
	return hasFinalizers(object) || isProtected(object)
}

// empty removes the subjects of a RoleBinding or the rules of a Role.
func empty(
	ctx context.Context, objects metadata.ResourceInterface, change Change,
) (*metav1.PartialObjectMetadata, error) {
	grants := "subjects"
	if change.Kind.GroupKind() == roleKind {
		grants = "rules"
	}
	return patchObserved(ctx, objects, change.Observed, map[string]any{grants: nil})
}

// patchObserved sets fields of the object that was observed, and removes the protection from deletion.
func patchObserved(
	ctx context.Context, objects metadata.ResourceInterface, observed *metav1.PartialObjectMetadata,
	fields map[string]any,
) (*metav1.PartialObjectMetadata, error) {
	write := func(ctx context.Context, version string) (*metav1.PartialObjectMetadata, error) {
		metadata := map[string]any{"uid": observed.UID}
		if version != "" {
			metadata["resourceVersion"] = version
		}
		if isProtected(observed) {
			metadata["annotations"] = map[string]any{v1alpha1.DeletionProtectionAnnotation: nil}
		}
		body := maps.Clone(fields)
		body["metadata"] = metadata
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		return objects.Patch(ctx, observed.Name, types.MergePatchType, data,
			metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	}
	return asObserved(ctx, objects, observed, SameRecord, write)
}

func finalizerFailure(change Change) *Failure {
	return failuref(ReasonHeldByFinalizer, "is being deleted and no longer grants anything, but finalizers keep it: "+
		"remove %s from its metadata.finalizers", strings.Join(change.Observed.Finalizers, ", "))
}

// remove deletes the object that was observed. It does not delete another object that has the name by now. It removes
// the protection from deletion before: the caller has decided that the protection does not hold.
func remove(ctx context.Context, objects metadata.ResourceInterface, observed *metav1.PartialObjectMetadata) error {
	observed, err := unprotect(ctx, objects, observed)
	if err != nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	_, err = asObserved(ctx, objects, observed, sameForDeletion,
		func(ctx context.Context, version string) (struct{}, error) {
			preconditions := &metav1.Preconditions{UID: &observed.UID}
			if version != "" {
				preconditions.ResourceVersion = &version
			}
			return struct{}{}, objects.Delete(ctx, observed.Name,
				metav1.DeleteOptions{Preconditions: preconditions, PropagationPolicy: &background})
		})
	return err
}
