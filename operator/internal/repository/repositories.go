package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inforce"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/repository/artifact"
	"nstpl.dev/nstpl/operator/internal/watch"
)

// Repositories is the controller of PolicyRepositories.
type Repositories struct {
	// Client reads from the cache, Live from the API server.
	Client   client.Client
	Live     client.Reader
	Cluster  *Cluster
	Recorder events.EventRecorder
	Metrics  *Metrics
	// Dir is the directory for fetched commits.
	Dir string

	// followed is what is known of each PolicyRepository, by UID. It has no lock, because only Reconcile uses it, which
	// runs once at a time.
	followed map[types.UID]*followed
	sources  *sources
	scopes   scopes
	// woken gets the names of PolicyRepositories about which a follower has an answer, and of those that may go on with
	// a handover of objects.
	woken chan event.GenericEvent
}

// followed is what this process knows of a PolicyRepository, besides its scope.
type followed struct {
	follower *follower
	// inForce is the tree that was last brought into force, maybe not completely.
	inForce *vetted
	// unmade are the objects with a change that the last pass was to make and has not made: see outcome.
	unmade map[inventory.ID]int
	// unanswered is since when creations are known that were not answered.
	unanswered map[inventory.ID]time.Time
	// fights counts how often each declaration is applied. All are in one group.
	fights *backoff.Fights[struct{}, declaration]
	// altered are the fields with which the API server stored objects other than declared.
	altered map[declaration]inforce.Field
}

const (
	// retryFailed is how soon objects that could not be written are tried again.
	retryFailed = 5 * time.Second
	// retryUsed is how soon it is looked again whether namespaces are in policyspaces that are to be deleted.
	retryUsed = time.Minute
	// retryStale is how soon a PolicyRepository is reconciled again that another client changed during a pass.
	retryStale = 100 * time.Millisecond
	// minRetry and maxRetry are how soon a comparison that failed is repeated: the former after the first failure, and
	// twice as late after each further one.
	minRetry, maxRetry = 5 * time.Millisecond, 30 * time.Second
)

// SetupWithManager adds the controller to a manager.
func (r *Repositories) SetupWithManager(mgr ctrl.Manager) error {
	r.woken = make(chan event.GenericEvent, 64)
	own, err := r.Cluster.as("")
	if err != nil {
		return err
	}
	r.sources = &sources{secrets: r.Live, objects: own.objects, dir: r.Dir, artifacts: artifact.NewClient()}
	b := ctrl.NewControllerManagedBy(mgr).Named("policyrepository").
		WithOptions(controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, maxRetry),
			// r.followed has no lock.
			MaxConcurrentReconciles: 1,
		}).
		For(&v1alpha1.PolicyRepository{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: watch.MoreThanStatus})).
		WatchesRawSource(source.Channel(r.woken, &handler.EnqueueRequestForObject{}))
	for kind := range resources {
		b = b.Watches(newObject(kind), handler.Funcs{
			CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
				r.Cluster.observed(kind, e.Object)
				r.changed(q, nil, e.Object)
			},
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
				r.Cluster.observed(kind, e.ObjectNew)
				if concernsTree(kind, e.ObjectOld, e.ObjectNew) {
					r.changed(q, e.ObjectOld, e.ObjectNew)
				}
			},
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
				r.Cluster.writtenOf(kind.GroupKind()).Deleted(
					inventory.ID{GroupKind: kind.GroupKind(), Name: e.Object.GetName()}, e.Object.GetUID())
				r.changed(q, e.Object, nil)
			},
		})
	}
	return b.Complete(r)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// concernsTree reports whether more than the status of an object changed, or whether a rollout begins or ends to be
// delayed. Namespaces and the kinds of RBAC have no generation. Trees declare only labels and annotations of
// Namespaces, and the kinds of RBAC have no status.
func concernsTree(kind schema.GroupVersionKind, before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration() ||
		kind.Group == rbacv1.GroupName && before.GetResourceVersion() != after.GetResourceVersion() ||
		!maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations()) ||
		!before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp()) ||
		inventory.Delayed(before) != inventory.Delayed(after)
}

// changed queues the PolicyRepositories that the change of an object concerns.
func (r *Repositories) changed(q queue, before, after client.Object) {
	old, _ := before.(*unstructured.Unstructured)
	object, _ := after.(*unstructured.Unstructured)
	for _, name := range r.scopes.concernedBy(old, object) {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}

// Reconcile asks for new commits of a PolicyRepository, brings the newest valid one into force, and reports.
func (r *Repositories) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.reconcile(ctx, req)
	if patch.IsStale(err) {
		return reconcile.Result{RequeueAfter: retryStale}, nil
	}
	return result, err
}

func (r *Repositories) reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	// While the watch is late, the cache knows neither a suspension nor that a confirmation is used up, nor which
	// PolicyRepositories exist.
	list := &v1alpha1.PolicyRepositoryList{}
	if err := r.Live.List(ctx, list); err != nil {
		return reconcile.Result{}, err
	}
	r.forgetDeleted(list)
	i := slices.IndexFunc(list.Items, func(one v1alpha1.PolicyRepository) bool { return one.Name == req.Name })
	if i < 0 {
		r.Metrics.forget(req.Name)
		return reconcile.Result{}, nil
	}
	repository := &list.Items[i]
	if repository.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	status := repository.Status.DeepCopy()
	if repository.Spec.Suspend {
		r.rest(repository)
		condition{reporting.Failed, v1alpha1.RepositorySuspended, "the synchronization is suspended: set spec.suspend to false to " +
			"resume"}.set(status, repository.Generation)
		return reconcile.Result{}, r.writeStatus(ctx, repository, status)
	}
	owners := ownersOf(list)
	if other := owners[treeName(repository)]; other != nil && isOlder(other, repository) {
		r.rest(repository)
		condition{reporting.Failed, v1alpha1.RepositoryTreeTaken, fmt.Sprintf("the tree %s is that of the PolicyRepository %s: rename "+
			"the directory of one of them", treeName(repository), other.Name)}.set(status, repository.Generation)
		return reconcile.Result{RequeueAfter: retryFailed}, r.writeStatus(ctx, repository, status)
	}
	f := r.of(repository)
	known, requested, wait := f.follower.follow(ctx, repository, f.inForce)
	if known == (answer{}) && len(status.Conditions) > 0 {
		// The process has just begun, or the repository is followed again. What the status says about the commits is
		// true until the first answer.
		wasResting := []string{v1alpha1.RepositorySuspended, v1alpha1.RepositoryTreeTaken}
		if slices.Contains(wasResting, status.Conditions[0].Reason) {
			condition{reporting.InProgress, v1alpha1.RepositoryProgressing, "the source is asked for the newest commit"}.
				set(status, repository.Generation)
		}
		return reconcile.Result{RequeueAfter: wait}, r.writeStatus(ctx, repository, status)
	}
	status.RequestedAt = requested
	reportProblem(status, known)
	if owned, isOwned := r.ownedByOther(repository, known, owners); isOwned {
		owned.set(status, repository.Generation)
		return reconcile.Result{RequeueAfter: wait}, r.writeStatus(ctx, repository, status)
	}
	var result *outcome
	if known.tree != nil {
		var err error
		if result, err = r.bring(ctx, repository, known, owners, status); err != nil {
			return reconcile.Result{}, err
		}
		wait = result.wait(wait)
	}
	now := conditionOf(known, result)
	if known.source != "" && !known.isAbout(repository) {
		// A client that waits for the change must not take what was known before for it.
		now = condition{reporting.InProgress, v1alpha1.RepositoryProgressing,
			"the source was changed, and is asked for its newest commit; " + inForce(known)}
	}
	now.set(status, repository.Generation)
	if known.isAbout(repository) && isSynced(repository, status, result) {
		status.LastSyncTime = new(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	if err := r.writeStatus(ctx, repository, status); err != nil {
		return reconcile.Result{}, err
	}
	r.record(repository, status, now)
	return reconcile.Result{RequeueAfter: wait}, nil
}

// ownedByOther returns the condition of a PolicyRepository with a new path that has no valid tree yet, if the tree of
// the path before has another owner now. Otherwise that tree stays in force meanwhile.
func (r *Repositories) ownedByOther(
	repository *v1alpha1.PolicyRepository, known answer, owners map[string]*v1alpha1.PolicyRepository,
) (owned condition, isOwned bool) {
	if known.tree == nil {
		return owned, false
	}
	other := owners[known.tree.root]
	if other == nil || other.UID == repository.UID {
		return owned, false
	}
	r.scopes.remove(repository.UID)
	message := fmt.Sprintf("the tree %s of the path before is that of the PolicyRepository %s now",
		known.tree.root, other.Name)
	if known.problem == nil {
		return condition{reporting.InProgress, v1alpha1.RepositoryProgressing, message}, true
	}
	return condition{reporting.Failed, known.problem.reason, known.problem.message + "; " + message}, true
}

// bring brings a tree into force, and reports in the status what that has changed.
func (r *Repositories) bring(
	ctx context.Context, repository *v1alpha1.PolicyRepository, known answer,
	owners map[string]*v1alpha1.PolicyRepository, status *v1alpha1.PolicyRepositoryStatus,
) (*outcome, error) {
	tree := known.tree
	isVoid := func(key, of string) bool {
		// The status has asked about the deletions by a directory of a commit.
		isOtherPath := key == v1alpha1.ConfirmedCommitAnnotation && tree.path != repository.Status.Path
		return known.problem == nil && of != tree.commit || isOtherPath
	}
	confirmed := repository.Annotations[v1alpha1.ConfirmedCommitAnnotation]
	if err := r.removeConfirmations(ctx, repository, isVoid); err != nil {
		return nil, err
	}
	if confirmed != "" && repository.Annotations[v1alpha1.ConfirmedCommitAnnotation] == "" {
		r.recordVoid(repository, confirmed)
	}
	o, err := r.applyTree(ctx, repository, tree, owners)
	if err != nil {
		condition{reporting.InProgress, v1alpha1.RepositoryProgressing, fmt.Sprintf("%s cannot be compared with the cluster: %v; it is "+
			"tried again", named(tree.commit), err)}.set(status, repository.Generation)
		return nil, errors.Join(err, r.writeStatus(ctx, repository, status))
	}
	reportOutcome(status, tree, o, time.Now())
	return &o, nil
}

// treeName returns the name of the tree that a PolicyRepository follows.
func treeName(repository *v1alpha1.PolicyRepository) string { return path.Base(repository.Spec.Path) }

// rest forgets what is known of a PolicyRepository that is not followed for a while.
func (r *Repositories) rest(repository *v1alpha1.PolicyRepository) {
	r.of(repository).follower.rest()
	r.scopes.remove(repository.UID)
}

// ownersOf returns the PolicyRepositories of a list that follow trees, by the name of the tree: the oldest of those
// with a tree of that name. The objects of two trees of one name would have the same label.
func ownersOf(list *v1alpha1.PolicyRepositoryList) map[string]*v1alpha1.PolicyRepository {
	owners := map[string]*v1alpha1.PolicyRepository{}
	for i := range list.Items {
		one := &list.Items[i]
		if name := treeName(one); owners[name] == nil || isOlder(one, owners[name]) {
			owners[name] = one
		}
	}
	return owners
}

// isOlder reports whether one PolicyRepository is older than another, or as old and before it by name.
func isOlder(one, other *v1alpha1.PolicyRepository) bool {
	order := one.CreationTimestamp.Compare(other.CreationTimestamp.Time)
	return order < 0 || order == 0 && one.Name < other.Name
}

// removeConfirmations removes confirmations of commits that are used up or void, so that they do not hold when the
// branch returns to that commit later.
func (r *Repositories) removeConfirmations(
	ctx context.Context, repository *v1alpha1.PolicyRepository, isOver func(key, commit string) bool,
) error {
	changed := repository.DeepCopy()
	for _, key := range []string{v1alpha1.ConfirmedCommitAnnotation, v1alpha1.ConfirmedRollbackAnnotation} {
		if commit := changed.Annotations[key]; commit != "" && isOver(key, commit) {
			delete(changed.Annotations, key)
		}
	}
	if len(changed.Annotations) == len(repository.Annotations) {
		return nil
	}
	// A later confirmation must not be removed, so this patch is for the version that was read.
	err := r.Client.Patch(ctx, changed, patch.WhileUnchanged(repository))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove a confirmation from PolicyRepository %s: %w", repository.Name, err)
	}
	*repository = *changed
	return nil
}

// syncResolution is how exact lastSyncTime is, so that a status is not written for each comparison.
const syncResolution = 30 * time.Second

// isSynced reports whether lastSyncTime must be set to now.
func isSynced(
	repository *v1alpha1.PolicyRepository, status *v1alpha1.PolicyRepositoryStatus, result *outcome,
) bool {
	if result == nil || !result.isComplete() || len(result.contested) > 0 {
		return false
	}
	last := repository.Status.LastSyncTime
	return last == nil || time.Since(last.Time) > syncResolution || result.applied+result.deleted > 0 ||
		status.RequestedAt != repository.Status.RequestedAt
}

// of returns what is known of a PolicyRepository.
func (r *Repositories) of(repository *v1alpha1.PolicyRepository) *followed {
	if known := r.followed[repository.UID]; known != nil {
		return known
	}
	name := repository.Name
	created := &followed{
		follower:   &follower{sources: r.sources, measure: r.Metrics.of(name), notify: func() { r.wake(name) }},
		unanswered: map[inventory.ID]time.Time{},
		fights:     backoff.NewFights[struct{}, declaration](),
		altered:    map[declaration]inforce.Field{},
	}
	if r.followed == nil {
		r.followed = map[types.UID]*followed{}
	}
	r.followed[repository.UID] = created
	return created
}

// wake has a PolicyRepository reconciled soon.
func (r *Repositories) wake(name string) {
	r.woken <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}}
}

// forgetDeleted forgets the PolicyRepositories that are not in the list of all, and removes the commits that were
// fetched for them. All objects stay. Every pass calls it, because no pass tells that one was deleted and created again
// under its name.
func (r *Repositories) forgetDeleted(list *v1alpha1.PolicyRepositoryList) {
	exists := map[types.UID]bool{}
	for i := range list.Items {
		exists[list.Items[i].UID] = true
	}
	maps.DeleteFunc(r.followed, func(uid types.UID, known *followed) bool {
		if !exists[uid] {
			known.follower.stop()
		}
		return !exists[uid]
	})
	r.scopes.forget(exists)
	r.sources.forget(exists)
}

// writeStatus stores a status that differs. A write that had no answer may be executed after the status was read: what
// only that one has would stay, so this patch, too, is for the version that was read.
func (r *Repositories) writeStatus(
	ctx context.Context, repository *v1alpha1.PolicyRepository, status *v1alpha1.PolicyRepositoryStatus,
) error {
	shorten(status)
	if equality.Semantic.DeepEqual(&repository.Status, status) {
		return nil
	}
	changed := repository.DeepCopy()
	changed.Status = *status
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, patch.WhileUnchanged(repository)))
}

// record records Events for changes that people wait for.
func (r *Repositories) record(
	repository *v1alpha1.PolicyRepository, status *v1alpha1.PolicyRepositoryStatus, now condition,
) {
	if status.Commits.Applied != repository.Status.Commits.Applied {
		r.Recorder.Eventf(repository, nil, corev1.EventTypeNormal, "CommitApplied", "Sync", "%s",
			describe(status.History[0]))
	}
	if now.kstatus == reporting.Failed && now.reason != v1alpha1.RepositorySuspended && !hasCondition(repository, now) {
		r.Recorder.Eventf(repository, nil, corev1.EventTypeWarning, now.reason, "Sync", "%s",
			reporting.Shorten(now.message))
	}
}

// hasCondition reports whether the stored Ready condition has this reason and message.
func hasCondition(repository *v1alpha1.PolicyRepository, now condition) bool {
	for _, stored := range repository.Status.Conditions {
		if stored.Type == v1alpha1.ConditionReady {
			return stored.Reason == now.reason && stored.Message == reporting.Shorten(now.message)
		}
	}
	return false
}
