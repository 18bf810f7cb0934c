package populate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// replace deletes an object that cannot be changed in place and creates it anew: RoleBindings, whose roleRef never
// changes, and objects that allow it by an annotation. It first asks the API server whether it would store the new one:
// if not, the declaration is refused and not the change. It reports whether the object was deleted.
func replace(ctx context.Context, objects metadata.ResourceInterface, change Change, refusal error) (written *metav1.PartialObjectMetadata, deleted bool, err error) {
	trial := Object{Unstructured: change.Declared.DeepCopy(), Hash: change.Declared.Hash}
	trial.SetName("nstpl-trial-" + trial.Hash)
	if _, err := patch(ctx, objects, &trial, options{dryRun: true}); err != nil {
		return nil, false, refusal
	}
	if err := mayReplace(change); err != nil {
		return nil, false, fmt.Errorf("cannot be changed in place: %w: %w", err, refusal)
	}
	rbac := isRBAC(change.Kind.GroupKind())
	if rbac && held(change.Observed) {
		err = revoke(ctx, objects, change)
	} else {
		err = remove(ctx, objects, change.Observed)
	}
	if err != nil {
		return nil, false, fmt.Errorf("delete it to create it anew: %w", err)
	}
	written, err = patch(ctx, objects, change.Declared, options{force: true, precondition: precondition{absent: true}})
	if !apierrors.IsConflict(err) {
		return written, true, err
	}
	existing, err := find(ctx, objects, change.Name, err)
	switch {
	case err != nil:
		return nil, true, err
	case existing.UID != change.Observed.UID:
		return nil, true, fmt.Errorf("deleted to be created anew, but another client created an object of the same name")
	case rbac:
		change.Observed = existing
		if err := empty(ctx, objects, change); err != nil {
			return nil, true, err
		}
		return nil, true, heldFailure(change)
	}
	return nil, true, &Failure{Reason: ReasonHeld, err: fmt.Errorf("deleted to be created anew, but finalizers keep it: remove %s from its metadata.finalizers",
		strings.Join(existing.Finalizers, ", "))}
}

// mayReplace returns why an object may not be deleted and created anew, or nil.
func mayReplace(change Change) error {
	switch {
	case change.Kind.GroupKind() == bindingKind && ownEntry(change.Observed) != nil:
		return nil // even an adopted one, or a grant that was revoked would go on
	case change.Kind.Group != rbacv1.GroupName && change.Declared.GetAnnotations()[v1alpha1.ReplaceAnnotation] != "true":
		return fmt.Errorf("annotate the template's object with %s: \"true\" if it may be deleted and created anew", v1alpha1.ReplaceAnnotation)
	case !Ours(change.Observed) && !change.Occupied:
		return errors.New("it existed before it was populated, so delete it yourself")
	}
	return nil
}
