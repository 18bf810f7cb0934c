package populate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// replace deletes an object that cannot be changed in place and recreates it: a RoleBinding, whose roleRef is
// immutable, a copy of a Secret or a ConfigMap, or an object with ReplaceAnnotation. The caller has checked by a trial
// that the API server would store the declared object. If it would not, nothing may be deleted.
func (p *pass) replace(
	ctx context.Context, objects resource, change Change, refusal error,
) (Outcome, error) {
	outcome := Outcome{Change: change}
	if err := MayReplace(change, change.Observed); err != nil {
		return outcome, Refused(change, err, refusal)
	}
	err := p.existing.remove(ctx, change)
	if err == nil {
		if isRBAC(change.Kind.GroupKind()) && hasFinalizers(change.Observed) {
			err = revoke(ctx, objects, change)
		} else {
			err = remove(ctx, objects, change.Observed)
		}
		outcome.MaybeDeleted = unanswered(err)
	}
	if err != nil {
		return outcome, fmt.Errorf("delete it to recreate it: %w", err)
	}
	outcome.Deleted = true
	outcome.Written, err = patch(ctx, objects, change.Declared, options{})
	if apierrors.IsConflict(err) && outcome.Written == nil {
		outcome.Written, err = afterConflict(ctx, objects, change, err)
	}
	outcome.Replaced = outcome.Written != nil
	return outcome, err
}

// try has the API server check, by a dry run under another name, whether the declared object is valid where no object
// is in its way. No user knows the name before, and so cannot create an object in the way of the trial.
func try(ctx context.Context, objects resource, change Change) error {
	trial := Object{Unstructured: change.Declared.DeepCopy(), Hash: change.Declared.Hash}
	trial.SetName("nstpl-trial-" + strings.ToLower(rand.Text()))
	_, err := patch(ctx, objects, &trial, options{dryRun: true})
	return err
}

// MayBeMissing reports, by the error of a trial, whether the object of a change may be deleted before it is recreated.
// Without room in a quota, the object would be missing. A RoleBinding grants what it should not any more.
func MayBeMissing(change Change, trial error) bool {
	return trial == nil || isRBAC(change.Kind.GroupKind()) && exceedsQuota(trial)
}

// afterConflict returns why an object of the same name exists after the deletion. It empties an RBAC object that is
// still being deleted. If the object is the replacement, because the answer to its creation was lost, afterConflict
// applies it again, and returns the result.
func afterConflict(
	ctx context.Context, objects resource, change Change, conflict error,
) (*metav1.PartialObjectMetadata, error) {
	existing, err := find(ctx, objects, change.Name)
	switch {
	case err != nil:
		return nil, err
	case existing == nil:
		return nil, conflict
	case existing.UID != change.Observed.UID && Ours(existing):
		return patch(ctx, objects, change.Declared, options{existing: existing, record: recordOf(existing)})
	case existing.UID != change.Observed.UID:
		return nil, errors.New("was deleted to be recreated, but another client created an object of the same name")
	case isRBAC(change.Kind.GroupKind()):
		change.Observed = existing
		if _, err := empty(ctx, objects, change); err != nil {
			return nil, err
		}
		return nil, finalizerFailure(change)
	}
	return nil, failuref(ReasonHeldByFinalizer, "is being deleted to be recreated, but finalizers keep it: remove %s "+
		"from its metadata.finalizers", strings.Join(existing.Finalizers, ", "))
}

var errExistedBefore = errors.New("it existed before nstpl managed it: delete it yourself")

// Refused returns why an existing object stays as it is: the API server's refusal of the change, and the obstacle to
// deleting and recreating the object.
func Refused(change Change, obstacle, refusal error) error {
	if change.Action == Create {
		return fmt.Errorf("cannot be adopted: %w: %w", obstacle, refusal)
	}
	return fmt.Errorf("cannot be changed in place: %w: %w", obstacle, refusal)
}

// MayReplace returns why the existing object of a change may not be deleted and recreated, or nil.
func MayReplace(change Change, existing metav1.Object) error {
	isOurs, replacesOwn := Ours(existing), change.replacesOwn(existing)
	isOwn := isOurs || change.Occupied || replacesOwn
	switch {
	case !isOurs && (change.Occupied || replacesOwn && change.Protects()):
		// Otherwise a user of the namespace could keep a policy, or what a RoleBinding grants to others, out of it.
		return nil
	case change.Action == Create && !isOwn && ownEntry(existing) == nil:
		return errExistedBefore
	case change.Kind.GroupKind() == bindingKind && ownEntry(existing) != nil:
		// Also if it was adopted: otherwise a grant that the template revoked would remain.
		return nil
	case change.Kind.Group != rbacv1.GroupName && !change.Declared.isReplaceableCopy() &&
		change.Declared.GetAnnotations()[v1alpha1.ReplaceAnnotation] != "true":
		return fmt.Errorf("annotate the template's object with %s: \"true\" if it may be deleted and recreated",
			v1alpha1.ReplaceAnnotation)
	case !isOwn:
		return errExistedBefore
	}
	return mayReplaceProtected(change)
}
