package populate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// An object with DeletionProtectionAnnotation is not deleted: an admission policy denies that to every client. Every
// user who may update an object may protect it. If the operator respected that, a user could keep a RoleBinding that a
// template takes away. So the operator distinguishes two cases by the owner of the annotation:
//
//   - The last applied declaration has the annotation. The object is kept, until a user with the verb unprotect
//     removes the annotation.
//   - Another client set it. The operator removes the annotation and then deletes the object.
//
// A later declaration without the annotation does not remove it either: see keepProtection.

func isProtected(object metav1.Object) bool {
	return object.GetAnnotations()[v1alpha1.DeletionProtectionAnnotation] == "true"
}

// IsProtectedByTemplate reports whether the declaration that nstpl applied last protects an object from deletion.
func IsProtectedByTemplate(object metav1.Object) bool {
	entry := ownEntry(object)
	if entry == nil || !isProtected(object) {
		return false
	}
	owned, err := ownedFields(entry)
	return err == nil && owned.hasAnnotation(v1alpha1.DeletionProtectionAnnotation)
}

// keepProtection returns the declaration to apply to an observed object. It is the declaration itself, with
// DeletionProtectionAnnotation if the last applied one had it and this one does not mention it. Otherwise a user could
// remove the protection by labels by which another template or overlay selects the namespace, and an author without the
// verb unprotect by dropping the object from a template and declaring it again. Vetting requires the verb for the value
// "false", which removes the protection.
func keepProtection(declared *Object, observed *metav1.PartialObjectMetadata) *Object {
	if _, isMentioned := declared.GetAnnotations()[v1alpha1.DeletionProtectionAnnotation]; isMentioned ||
		observed == nil || !IsProtectedByTemplate(observed) {
		return declared
	}
	kept := *declared
	kept.Unstructured = &unstructured.Unstructured{Object: maps.Clone(declared.Object)}
	metadata, _ := declared.Object["metadata"].(map[string]any)
	kept.Object["metadata"] = maps.Clone(metadata)
	render.AddAnnotations(kept.Unstructured, map[string]string{v1alpha1.DeletionProtectionAnnotation: "true"})
	var err error
	if kept.Hash, err = render.Hash(kept.Unstructured); err != nil {
		return declared // cannot happen: the declaration has a hash
	}
	return &kept
}

// keepProtected replaces the pruning of an object that its template protects by leaving it alone. A withheld
// RoleBinding is pruned all the same: it could grant more than the author of its template was admitted with.
func keepProtected(declared Declared, change Change) Change {
	isWithheld := slices.ContainsFunc(declared.Withheld, func(w Withheld) bool { return w.Object.ID() == change.ID() })
	if change.Action != Prune || isWithheld || !IsProtectedByTemplate(change.Observed) {
		return change
	}
	change.Action, change.Undeclared, change.Protected = LeaveAlone, false, true
	change.Reason = fmt.Sprintf(messageProtected+" (%s): to have it deleted, "+
		"a user with the verb unprotect on it must remove its annotation %s", change.Reason,
		v1alpha1.DeletionProtectionAnnotation)
	return change
}

// mayReplaceProtected returns why an object must not be deleted and recreated because its declaration protects it, or
// nil. RoleBindings are replaced all the same: otherwise a grant that the template changed would remain.
func mayReplaceProtected(change Change) error {
	if change.Kind.Group == rbacv1.GroupName || !isProtected(change.Declared) {
		return nil
	}
	return fmt.Errorf("its declaration protects it from deletion: remove the annotation %s from the template first",
		v1alpha1.DeletionProtectionAnnotation)
}

// unprotect removes the annotation that protects an object from deletion, if it has one. It returns the object's
// metadata after that.
func unprotect(
	ctx context.Context, objects metadata.ResourceInterface, observed *metav1.PartialObjectMetadata,
) (*metav1.PartialObjectMetadata, error) {
	if !isProtected(observed) {
		return observed, nil
	}
	return patchObserved(ctx, objects, observed, map[string]any{})
}
