package survey

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// Explain returns whether the revision of a template that a namespace has selects the namespace, and why.
func Explain(index *match.Index, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) match.Verdict {
	return index.Exemptions(ns.Name).Apply(explain(template, index.Layers(template.Name), ns))
}

// Awaited returns the names of the templates that select a namespace with their newest revisions, which have not
// reached it.
func Awaited(index *match.Index, ns *corev1.Namespace) []string {
	var names []string
	for _, template := range index.Ahead(ns) {
		names = append(names, template.Name)
	}
	return names
}

func explain(template *v1alpha1.NamespaceTemplate, layers rollout.Layers, ns *corev1.Namespace) match.Verdict {
	stored := match.Explain(template, ns)
	notReached := fmt.Sprintf("revision %d has not reached the namespace yet", layers[0].Revision)
	switch layer := layers.For(ns); {
	case layer == nil && stored.Matches:
		stored.Matches, stored.Overlays, stored.Reason = false, nil, notReached
	case layer == nil, !stored.Matches && match.RequiresPermission(template):
	case layer != &layers[0]:
		stored = match.Explain(layer.Template, ns)
		stored.Reason += fmt.Sprintf(" (revision %d: %s)", layer.Revision, notReached)
	case isBefore(layer, template):
		stored = match.Explain(layer.Template, ns)
		stored.Reason += fmt.Sprintf(" (revision %d: the operator has not accepted the change since)", layer.Revision)
	}
	return stored
}

// isBefore reports whether a layer has the spec of a template before a change that the operator has not accepted.
func isBefore(layer *rollout.Layer, template *v1alpha1.NamespaceTemplate) bool {
	return layer.Template.Generation != template.Generation && cluster.HasUnacceptedChange(template)
}

// NotAccepted returns the names of the templates with a change that the operator has not accepted, if they select some
// of the namespaces with the change or without it.
func NotAccepted(index *match.Index, namespaces []*corev1.Namespace) []string {
	var names []string
	for _, template := range index.All() {
		if isBefore(&index.Layers(template.Name)[0], template) && template.DeletionTimestamp == nil &&
			slices.ContainsFunc(namespaces, func(ns *corev1.Namespace) bool {
				return match.Explain(template, ns).Matches || Explain(index, template, ns).Matches
			}) {
			names = append(names, template.Name)
		}
	}
	return names
}

// Idle returns a note for each template that selects one of the namespaces, and with which the operator does nothing
// there until it accepts the template. It does not name those of which an earlier revision stays in force meanwhile.
func Idle(index *match.Index, namespaces []*corev1.Namespace) (notes []string) {
	for _, template := range index.All() {
		accepted := apimeta.FindStatusCondition(template.Status.Conditions, v1alpha1.TemplateAccepted)
		isRefused := accepted != nil && accepted.Status == metav1.ConditionFalse &&
			accepted.ObservedGeneration == template.Generation
		if isRefused && slices.ContainsFunc(namespaces, func(ns *corev1.Namespace) bool {
			return match.Explain(template, ns).Matches && isIdleIn(index, template, ns)
		}) {
			notes = append(notes, fmt.Sprintf("template %s is not accepted, so the operator does nothing with it meanwhile "+
				"('kubectl nstpl why namespacetemplate/%[1]s' says why)", template.Name))
		}
	}
	return notes
}

// isIdleIn reports whether the operator does nothing in a namespace with a template that it has not accepted: with none
// of its revisions, or with the one that the namespace has, which renders from values that no rule protects.
func isIdleIn(index *match.Index, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) bool {
	if len(template.Status.Revisions) == 0 {
		return true
	}
	layer := index.Layers(template.Name).For(ns)
	return layer != nil && populate.AsReported(layer.Template, render.UsedKeys(&layer.Template.Spec)) != nil
}
