package population

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// templatesDefinition is the CustomResourceDefinition of NamespaceTemplates.
var templatesDefinition = "namespacetemplates." + v1alpha1.GroupVersion.Group

var errUninstalling = errors.New("the CustomResourceDefinition " + templatesDefinition +
	" is being deleted: what templates populated stays as it is, and nothing more is populated")

// definitionOf returns an empty CustomResourceDefinition for its metadata.
func definitionOf(name string) *metav1.PartialObjectMetadata {
	definition := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	})
	return definition
}

// uninstalling reports whether templates are being deleted because their CustomResourceDefinition is. Then their
// objects remain, also with deletionPolicy Delete: deleting the definition is not a decision about them. The definition
// is read after the deletion of a template was seen, which the deletion of the definition precedes.
func (r *Templates) uninstalling(ctx context.Context) (bool, error) {
	definition := definitionOf(templatesDefinition)
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(definition), definition)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read whether templates are uninstalled: %w", err)
	}
	return definition.DeletionTimestamp != nil, nil
}

// keepObjects releases a template that is being uninstalled, and keeps it in the index, so that plans made meanwhile do
// not prune its objects.
func (r *Templates) keepObjects(ctx context.Context, template *v1alpha1.NamespaceTemplate) (reconcile.Result, error) {
	if _, err := r.Remains.release(ctx, template, true); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: kindsRetry}, nil // the definition may be back by then, without the template
}
