package survey

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata/fake"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

func TestTwoVersionsOfANamespaceAreReadOnce(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	template.Spec.Templates = []runtime.RawExtension{
		{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "same"}}`)},
		{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}, "data": {"of": "$(CREATOR)"}}`)},
	}
	scheme := fake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	client := fake.NewSimpleMetadataClient(scheme)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	c := &cluster.Cluster{Metadata: client, Mapper: meta.ToRESTMapperWithContext(mapper)}
	ns := func(creator string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "team-a", UID: "u", Annotations: map[string]string{v1alpha1.CreatorAnnotation: creator},
		}}
	}
	compared, err := Compare(t.Context(), c, match.NewIndex(template), []*corev1.Namespace{ns("jane"), ns("joe")}, Scope{})
	require.NoError(t, err)
	require.Len(t, client.Actions(), 2, "those with the label of a template, and those without")
	planned := slices.Collect(compared.Namespaces(t.Context()))
	changes := Except(planned[1].Changes, planned[0].Changes)
	require.Len(t, changes, 1)
	require.Equal(t, "own", changes[0].Name)
	require.Equal(t, populate.Create, changes[0].Action)
}
