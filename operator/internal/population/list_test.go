package population

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Looking up the namespace that a selector names finds what listing all of them finds.
func TestListAgreesWithTheLister(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for i := range 4 {
		name := fmt.Sprint("n", i)
		require.NoError(t, indexer.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelMetadataName: name, "class": fmt.Sprint(i % 2)},
		}}))
	}
	lister := corev1listers.NewNamespaceLister(indexer)
	for text, want := range map[string]int{
		"kubernetes.io/metadata.name=n1": 1, "kubernetes.io/metadata.name=n1,class=1": 1,
		"kubernetes.io/metadata.name=n1,class=0": 0, "kubernetes.io/metadata.name=none": 0,
		"kubernetes.io/metadata.name in (n1)": 1, "kubernetes.io/metadata.name in (n1,n2)": 2,
		"kubernetes.io/metadata.name!=n1": 3, "class=0": 2, "": 4,
	} {
		selector, err := labels.Parse(text)
		require.NoError(t, err)
		all, err := lister.List(selector)
		require.NoError(t, err)
		found, err := list(lister, selector)
		require.NoError(t, err)
		require.ElementsMatch(t, all, found, text)
		require.Len(t, found, want, text)
	}
}
