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

// definitionOf returns what the metadata of a CustomResourceDefinition is read into.
func definitionOf(name string) *metav1.PartialObjectMetadata {
	definition := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	definition.SetGroupVersionKind(schema.GroupVersionKind{
		Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition",
	})
	return definition
}

// uninstalling tells whether templates go because their definition does. Nobody meant what they populated then: it
// stays, also with deletionPolicy Delete. The definition is asked for when a template is seen to go, which is after the
// definition began to.
func (r *Templates) uninstalling(ctx context.Context) (bool, error) {
	definition := definitionOf(templatesDefinition)
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(definition), definition)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("see whether templates are uninstalled: %w", err)
	}
	return definition.DeletionTimestamp != nil, nil
}

// leave lets a template go that is uninstalled, or is gone already, as if it were still there: what is planned
// meanwhile goes by it.
func (r *Templates) leave(ctx context.Context, template *v1alpha1.NamespaceTemplate) (reconcile.Result, error) {
	if _, err := r.release(ctx, template, true); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: kindsRetry}, nil // the definition may be back by then, without the template
}
