package match

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// SelectorKeys returns the keys of the labels by which a template selects namespaces: for itself, for its overlays and
// for the waves of its rollout, in ascending order. It leaves out the keys that no template may set anyway: that of
// the namespace's name, and those that are reserved for nstpl.
func SelectorKeys(spec *v1alpha1.NamespaceTemplateSpec) []string {
	keys := map[string]struct{}{}
	addKeys(keys, spec.Namespaces.LabelSelector)
	for i := range spec.Overlays {
		addKeys(keys, spec.Overlays[i].Namespaces.LabelSelector)
	}
	if spec.Rollout != nil {
		addWaves(keys, spec.Rollout.Waves)
	}
	return slices.Sorted(maps.Keys(keys))
}

// KeysOf returns the keys of a label selector, which may be nil, as SelectorKeys does.
func KeysOf(selector *metav1.LabelSelector) []string {
	keys := map[string]struct{}{}
	addKeys(keys, selector)
	return slices.Sorted(maps.Keys(keys))
}

func addWaves(keys map[string]struct{}, waves []v1alpha1.Wave) {
	for i := range waves {
		addKeys(keys, waves[i].Selector)
	}
}

func addKeys(keys map[string]struct{}, selector *metav1.LabelSelector) {
	if selector == nil {
		return
	}
	add := func(key string) {
		if key != corev1.LabelMetadataName && !isOwnKey(key) {
			keys[key] = struct{}{}
		}
	}
	for key := range selector.MatchLabels {
		add(key)
	}
	for _, expression := range selector.MatchExpressions {
		add(expression.Key)
	}
}

// isOwnKey reports whether a label is one of nstpl, such as one of policy spaces.
func isOwnKey(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	group := v1alpha1.GroupVersion.Group
	return found && (prefix == group || strings.HasSuffix(prefix, "."+group))
}

// keysOf returns the keys by which a template selects namespaces, as it is stored and in all of its revisions.
func keysOf(template *v1alpha1.NamespaceTemplate, layers rollout.Layers) []string {
	keys := SelectorKeys(&template.Spec)
	for i := range layers {
		waves := map[string]struct{}{}
		addWaves(waves, layers[i].Waves)
		keys = slices.AppendSeq(keys, maps.Keys(waves))
		if layers[i].Template != template {
			keys = append(keys, SelectorKeys(&layers[i].Template.Spec)...)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// SelectedBy returns the name of the first template, in alphabetical order, that selects namespaces, overlays or waves
// by a label, or "" if none does. It includes disabled templates, since they may be enabled at any time.
func (x *Index) SelectedBy(label string) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	first := ""
	for name := range x.byKey[label] {
		if first == "" || name < first {
			first = name
		}
	}
	return first
}
