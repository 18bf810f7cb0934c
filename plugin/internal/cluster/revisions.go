package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Revision is a spec that a template had.
type Revision struct {
	*appsv1.ControllerRevision
	// Spec has all fields of the spec except for those that are about the rollout itself: rollout and
	// revisionHistoryLimit.
	Spec map[string]any
}

// Template returns a NamespaceTemplate, or a NotInstalledError.
func (c *Cluster) Template(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	return c.object(ctx, v1alpha1.NamespaceTemplates, name)
}

// Revisions returns the revisions of a template that the operator keeps, the newest first. Revisions of an earlier
// template of the same name are not among them.
func (c *Cluster) Revisions(ctx context.Context, template *unstructured.Unstructured) ([]Revision, error) {
	list, err := c.Apps.ControllerRevisions(v1alpha1.OperatorNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.RevisionOfLabel + "=" + template.GetName(),
	})
	if apierrors.IsForbidden(err) {
		return nil, mayRead(err)
	}
	if err != nil {
		return nil, err
	}
	var revisions []Revision
	for i := range list.Items {
		stored := &list.Items[i]
		if !metav1.IsControlledBy(stored, template) {
			continue
		}
		spec, err := revisionSpec(stored)
		if err != nil {
			return nil, err
		}
		revisions = append(revisions, Revision{ControllerRevision: stored, Spec: spec})
	}
	slices.SortFunc(revisions, func(a, b Revision) int { return cmp.Compare(b.Revision, a.Revision) })
	return revisions, nil
}

// mayRead returns an error that says how to get the permission that a user lacks.
func mayRead(forbidden error) error {
	return fmt.Errorf("%w (the Role nstpl-revision-viewer in the namespace %s grants it)", forbidden,
		v1alpha1.OperatorNamespace)
}

func revisionSpec(revision *appsv1.ControllerRevision) (map[string]any, error) {
	var data struct {
		Spec json.RawMessage `json:"spec"`
	}
	var spec map[string]any
	err := json.Unmarshal(revision.Data.Raw, &data)
	if err == nil {
		err = utiljson.Unmarshal(data.Spec, &spec)
	}
	if err != nil || spec == nil {
		return nil, fmt.Errorf("controllerrevision %q in namespace %q does not contain the spec of a template: delete it",
			revision.Name, revision.Namespace)
	}
	return spec, nil
}
