package survey

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
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
	if layer := layers.For(ns); layer == nil {
		if !stored.Matches {
			return stored
		}
		stored.Matches, stored.Overlays = false, nil
		stored.Reason = fmt.Sprintf("revision %d has not reached the namespace yet", layers[0].Revision)
	} else if layer != &layers[0] && (stored.Matches || !match.RequiresPermission(template)) {
		stored = match.Explain(layer.Template, ns)
		stored.Reason += fmt.Sprintf(" (revision %d: revision %d has not reached the namespace yet)", layer.Revision,
			layers[0].Revision)
	}
	return stored
}
