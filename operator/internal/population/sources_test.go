package population

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Copies are counted in all namespaces of all templates, and those of templates that allow a size by themselves.
func TestCountCopies(t *testing.T) {
	t.Parallel()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, name := range []string{"a", "b", "c", "kube-system"} {
		require.NoError(t, namespaces.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	source := v1alpha1.Source{APIVersion: "v1", Kind: "Secret", Namespace: "registry", Name: "pull"}
	again, other := source, source
	again.As, again.MaxSize = "again", new(resource.MustParse("128Ki"))
	other.Name = "other"
	template := func(name string, sources ...v1alpha1.Source) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
		template.Spec.Sources = sources
		return template
	}
	index := match.NewIndex(template("one", source, other), template("two", source, again, other))
	r := &Templates{
		Acceptance: &Acceptance{Index: index},
		Rollouts:   &Rollouts{Namespaces: corev1listers.NewNamespaceLister(namespaces)},
	}
	for size, want := range map[int]int{10: 9, 64 << 10: 9, 65 << 10: 6, 129 << 10: 0} {
		all, allowed := r.countCopies(render.RefOf(&source), size, []string{"deleted", "one", "two"})
		require.Equal(t, 9, all)
		require.Equal(t, want, allowed, size)
	}
	require.Equal(t, 128<<10, r.largestCopy(render.RefOf(&source), []string{"two", "deleted", "one"}))
	require.Equal(t, 64<<10, r.largestCopy(render.RefOf(&source), []string{"one"}))
	require.Zero(t, r.largestCopy(render.RefOf(&source), []string{"deleted"}))
	all, _ := r.countCopies(render.RefOf(&other), 10, []string{"one"})
	require.Equal(t, 3, all)
}
