package diff

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// follower is the PolicyRepository that follows a tree, so that nstpl-sync applies it, or nil if other tools do.
type follower *v1alpha1.PolicyRepository

// follower returns the PolicyRepository that follows a tree, or nil if there is none, or if several do, as while a tree
// is handed over. It prints a note if nstpl-sync follows the tree, or if that is unknown.
func (d *diff) follower(ctx context.Context, c *cluster.Cluster, root string) (follower, error) {
	repositories, err := c.PolicyRepositories(ctx)
	if apierrors.IsForbidden(err) {
		d.Note("you may not list policyrepositories, so the differences are those of 'kubectl nstpl hydrate': nstpl-sync " +
			"may also adopt existing namespaces, and leaves labels that templates set")
		return nil, nil
	}
	if errors.Is(err, cluster.NotInstalledError{}) {
		return nil, nil // the cluster has nstpl, but not this kind
	}
	var followers []*v1alpha1.PolicyRepository
	for i := range repositories {
		if repositories[i].Status.Tree == root {
			followers = append(followers, &repositories[i])
		}
	}
	if err != nil || len(followers) != 1 {
		return nil, err
	}
	d.Note("nstpl-sync follows the tree: policyrepository/%s may also limit deletions, and keeps what it did not create",
		followers[0].Name)
	return followers[0], nil
}

// followed returns the declared objects of a tree as nstpl-sync applies them: a namespace keeps the labels and
// annotations that templates have set to other values, and is adopted if the PolicyRepository says so, unless it
// belongs to another tree.
func (live liveObjects) followed(
	by follower, declared []*unstructured.Unstructured,
) []*unstructured.Unstructured {
	templates := map[inventory.ID]*unstructured.Unstructured{}
	for _, template := range live[templateKind] {
		templates[inventory.IDOf(template)] = template
	}
	followed := make([]*unstructured.Unstructured, 0, len(declared))
	for _, object := range declared {
		existing := live[namespaceKind][object.GetName()]
		if object.GroupVersionKind() == namespaceKind && existing != nil {
			object = inventory.State{Live: templates}.WithoutTemplateValues(object, existing)
			annotations := existing.GetAnnotations()
			isAdopted := annotations[v1alpha1.InTreeAnnotation] == "true" || annotations[v1alpha1.AdoptAnnotation] == "true"
			isOfAnother := otherTree(existing, object.GetLabels()[v1alpha1.TreeLabel]) != ""
			if by.Spec.ExistingNamespaces == v1alpha1.ExistingAdopt && !isAdopted && !isOfAnother {
				object = object.DeepCopy()
				render.AddAnnotations(object, map[string]string{v1alpha1.AdoptAnnotation: "true"})
			}
		}
		followed = append(followed, object)
	}
	return followed
}
