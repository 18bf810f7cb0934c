package cluster

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// UnreadRevisionsError says that namespaces have a revision of a template which cannot be read.
type UnreadRevisionsError struct {
	Template string
	Err      error
}

func (e UnreadRevisionsError) Error() string {
	return fmt.Sprintf("a revision of template %s cannot be read, so it is assumed that its namespaces have "+
		"the stored spec: %v", e.Template, e.Err)
}

func (e UnreadRevisionsError) Unwrap() error { return e.Err }

// Index returns an index of templates in which each of the namespaces has the revision that rollouts have given it, and
// its exemptions. It reads a revision only if one of the namespaces has it. The errors are UnreadRevisionsErrors and
// UnreadExemptionsErrors.
func (c *Cluster) Index(
	ctx context.Context, templates []*v1alpha1.NamespaceTemplate, namespaces []*corev1.Namespace,
) (*match.Index, []error) {
	index, unread := c.IndexWithoutExemptions(ctx, templates, namespaces)
	exemptions, err := c.Exemptions(ctx, namespaces)
	if err != nil {
		unread = append(unread, err)
	}
	SetExemptions(index, exemptions)
	return index, unread
}

// IndexWithoutExemptions returns an index of templates as Index does, without exemptions. The errors are
// UnreadRevisionsErrors.
func (c *Cluster) IndexWithoutExemptions(
	ctx context.Context, templates []*v1alpha1.NamespaceTemplate, namespaces []*corev1.Namespace,
) (*match.Index, []error) {
	index := match.NewIndex()
	var unread []error
	for _, template := range templates {
		layers, err := layersOf(template, func(layers rollout.Layers, layer *rollout.Layer) bool {
			return slices.ContainsFunc(namespaces, func(ns *corev1.Namespace) bool { return layers.For(ns) == layer })
		}, func(name string) (*v1alpha1.NamespaceTemplateSpec, error) { return c.revisionOf(ctx, template, name) })
		if err != nil {
			unread = append(unread, UnreadRevisionsError{template.Name, err})
			layers = rollout.Single(template)
		}
		index.SetLayers(template, layers)
	}
	return index, unread
}

// HasUnacceptedChange reports whether a template was changed, and the operator has not accepted the change, or not yet:
// then its revisions are those of earlier specs. It reports false for a template without revisions.
func HasUnacceptedChange(template *v1alpha1.NamespaceTemplate) bool {
	status := template.Status
	isAccepted := status.ObservedGeneration == template.Generation &&
		apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.TemplateAccepted)
	return len(status.Revisions) > 0 && !isAccepted
}

// layersOf returns the newest revision of a template, and earlier ones that are in use, which read returns by name. The
// newest revision is that of the last accepted change whose revision is stored.
func layersOf(
	template *v1alpha1.NamespaceTemplate, isUsed func(rollout.Layers, *rollout.Layer) bool,
	read func(name string) (*v1alpha1.NamespaceTemplateSpec, error),
) (rollout.Layers, error) {
	revisions, isNewest := template.Status.Revisions, !HasUnacceptedChange(template)
	if len(revisions) == 0 {
		return rollout.Single(template), nil
	}
	specs := map[string]*v1alpha1.NamespaceTemplateSpec{}
	for i := range revisions {
		specs[revisions[i].Name] = &template.Spec
	}
	layers := rollout.New(template, revisions, specs)
	for i := range layers {
		if i == 0 && isNewest {
			continue // its spec is that of the template
		}
		name := layers[i].Name
		delete(specs, name)
		if i > 0 && !isUsed(layers, &layers[i]) {
			continue
		}
		spec, err := read(name)
		if err != nil {
			return nil, err
		}
		specs[name] = spec
	}
	return rollout.New(template, revisions, specs), nil
}

func (c *Cluster) revisionOf(
	ctx context.Context, template *v1alpha1.NamespaceTemplate, name string,
) (*v1alpha1.NamespaceTemplateSpec, error) {
	stored, err := c.Apps.ControllerRevisions(v1alpha1.OperatorNamespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return nil, mayRead(err)
	}
	if err != nil {
		return nil, err
	}
	if !metav1.IsControlledBy(stored, template) {
		return nil, fmt.Errorf("controllerrevision %q in namespace %q is not of the template", name, stored.Namespace)
	}
	content, err := revisionSpec(stored)
	if err != nil {
		return nil, err
	}
	spec := &v1alpha1.NamespaceTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, spec); err != nil {
		return nil, fmt.Errorf("decode revision %s of template %s: %w", name, template.Name, err)
	}
	return spec, nil
}
