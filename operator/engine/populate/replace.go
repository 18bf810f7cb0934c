package populate

import (
	"context"
	"errors"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// replace deletes an object that can't be changed in place and creates it anew: bindings, whose roleRef never changes,
// and what says so itself. It first asks the API server whether it would take the new one: if not, it is not the change
// that is refused but what is declared.
func replace(ctx context.Context, objects metadata.ResourceInterface, change Change, refusal error) (*metav1.PartialObjectMetadata, error) {
	trial := Object{Unstructured: change.Declared.DeepCopy(), Hash: change.Declared.Hash}
	trial.SetName("nstpl-trial-" + trial.Hash)
	if _, err := patch(ctx, objects, &trial, options{dryRun: true}); err != nil {
		return nil, refusal
	}
	if change.Kind.Group != rbacv1.GroupName && change.Declared.GetAnnotations()[v1alpha1.ReplaceAnnotation] != "true" {
		return nil, fmt.Errorf("it can't be changed in place (annotate the template's object with %s: \"true\" if it may be "+
			"deleted and created anew): %w", v1alpha1.ReplaceAnnotation, refusal)
	}
	if !Ours(change.Observed) && !change.Occupied {
		return nil, fmt.Errorf("it can't be changed in place, and was there before it was populated (delete it by hand): %w", refusal)
	}
	if err := remove(ctx, objects, change.Observed); err != nil {
		return nil, fmt.Errorf("delete it to create it anew: %w", err)
	}
	written, err := patch(ctx, objects, change.Declared, options{force: true})
	if apierrors.IsInvalid(err) {
		return nil, &Failure{Reason: ReasonImmutable, err: errors.New("it is deleted to be created anew, and a finalizer holds it")}
	}
	return written, err
}
