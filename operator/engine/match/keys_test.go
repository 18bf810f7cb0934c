package match

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

func TestIndexKnowsTheLabelsByWhichTemplatesSelect(t *testing.T) {
	t.Parallel()
	selects := func(key string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: key, Operator: metav1.LabelSelectorOpDoesNotExist,
		}}}
	}
	b := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "b", Generation: 2}}
	b.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{
		"own": "", "kubernetes.io/metadata.name": "x", "root.tree.policy.nstpl.dev/depth": "1",
	}}
	b.Spec.Overlays = []v1alpha1.Overlay{{Namespaces: v1alpha1.NamespaceSelector{LabelSelector: selects("overlay")}}}
	b.Spec.Rollout = &v1alpha1.Rollout{Waves: []v1alpha1.Wave{{Selector: selects("wave")}}}
	require.Equal(t, []string{"overlay", "own", "wave"}, SelectorKeys(&b.Spec))

	before := &v1alpha1.NamespaceTemplateSpec{Namespaces: v1alpha1.NamespaceSelector{LabelSelector: selects("before")}}
	revisions := []v1alpha1.TemplateRevision{
		{Name: "new", Generation: 2},
		{Name: "old", Generation: 1, Waves: []v1alpha1.Wave{{Selector: selects("earlier-wave")}}},
	}
	layers := rollout.New(b, revisions,
		map[string]*v1alpha1.NamespaceTemplateSpec{"new": &b.Spec, "old": before})
	a := b.DeepCopy()
	a.Name, a.Annotations = "a", map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}

	index := NewIndex(a)
	index.SetLayers(b, layers)
	for _, key := range []string{"own", "overlay", "wave"} {
		require.Equal(t, "a", index.SelectedBy(key), key)
	}
	for _, key := range []string{"before", "earlier-wave"} {
		require.Equal(t, "b", index.SelectedBy(key), key)
	}
	require.Empty(t, index.SelectedBy("kubernetes.io/metadata.name"))
	require.Empty(t, index.SelectedBy("root.tree.policy.nstpl.dev/depth"))
	index.Delete("a")
	require.Equal(t, "b", index.SelectedBy("own"))
	index.Set(a)
	index.Set(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	index.Delete("a")
	require.Empty(t, index.byKey)
}
