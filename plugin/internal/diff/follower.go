package diff

import (
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// follower is the PolicyRepository that follows a tree, so that nstpl-sync applies it, or nil if other tools do.
type follower *v1alpha1.PolicyRepository

// follower returns the PolicyRepository that follows a tree, or nil if there is none, or if that is unknown. It prints
// a note if nstpl-sync follows the tree, may do so, or is to do so again.
func (d *diff) follower(ctx context.Context, c *cluster.Cluster, root string) (follower, error) {
	repositories, err := c.PolicyRepositories(ctx)
	if apierrors.IsForbidden(err) {
		d.Note("you may not list policyrepositories%s", asHydrated)
		return nil, nil
	}
	if errors.Is(err, cluster.NotInstalledError{}) {
		return nil, nil // the cluster has nstpl, but not this kind
	}
	if err != nil {
		return nil, err
	}
	by, note := followerOf(repositories, root)
	if note != "" {
		d.Note("%s", note)
	}
	return by, nil
}

// asHydrated ends the notes about trees that nstpl-sync may follow.
const asHydrated = ", so the differences are those of 'kubectl nstpl hydrate': nstpl-sync may also adopt existing " +
	"namespaces, and leaves labels that templates set"

// followerOf returns the PolicyRepository that follows a tree, and a note. It returns nil if there is none, or if
// several seem to follow it, as while one that did gets another path. One that is suspended, or whose tree is that of
// an older one, does not follow the tree that its status names: other tools may apply it.
func followerOf(repositories []v1alpha1.PolicyRepository, root string) (by follower, note string) {
	var names, suspended []string
	for i := range repositories {
		one := &repositories[i]
		ready := apimeta.FindStatusCondition(one.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case one.Status.Tree != root:
		case one.Spec.Suspend:
			suspended = append(suspended, one.Name)
		case ready == nil || ready.Reason != v1alpha1.RepositoryTreeTaken:
			by, names = one, append(names, one.Name)
		}
	}
	switch {
	case len(names) > 1:
		return nil, "the tree is that of several PolicyRepositories, " + strings.Join(names, ", ") + asHydrated
	case len(names) == 1:
		return by, "nstpl-sync follows the tree: policyrepository/" + names[0] + " may also limit deletions, and keeps " +
			"what it did not create"
	case len(suspended) > 0:
		return nil, "policyrepository/" + suspended[0] + " is suspended" + asHydrated
	}
	return nil, ""
}

// followed returns the declared objects of a tree as nstpl-sync applies them: a namespace keeps the labels and
// annotations that templates have set to other values, and is adopted if the PolicyRepository says so, unless it
// belongs to another tree.
func (live liveObjects) followed(
	by follower, declared []*unstructured.Unstructured,
) []*unstructured.Unstructured {
	templates := map[inventory.ID]*unstructured.Unstructured{}
	for _, template := range live[templateKind] {
		templates[render.IDOf(template)] = template
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
