package survey

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// clusterOfConfigMaps returns a cluster with some ConfigMaps, and its client.
func clusterOfConfigMaps(t *testing.T, objects ...runtime.Object) (*cluster.Cluster, *fake.FakeMetadataClient) {
	t.Helper()
	scheme := fake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	client := fake.NewSimpleMetadataClient(scheme, objects...)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	return &cluster.Cluster{Metadata: client, Mapper: meta.ToRESTMapperWithContext(mapper)}, client
}

// Nothing is known about a kind that the API server cannot list. The other kinds are compared all the same.
func TestKindsThatAreNotListed(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	template.Spec.Templates = []runtime.RawExtension{
		{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`)},
	}
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		err        error
		action     populate.Action
		unreadable string
		failure    string
	}{
		"forbidden": {
			err: apierrors.NewForbidden(resource, "", nil), action: populate.Unknown,
			unreadable: "you cannot list configmaps in namespace team-a",
		},
		"an aggregated API that is down": {
			err: apierrors.NewServiceUnavailable("no endpoints"), action: populate.Unknown,
			unreadable: "the API server cannot list configmap: no endpoints",
		},
		"an object that cannot be decrypted": {
			err: apierrors.NewInternalError(errors.New("no key")), action: populate.Unknown,
			unreadable: "the API server cannot list configmap: Internal error occurred: no key",
		},
		"removed after discovery": {err: apierrors.NewNotFound(resource, ""), action: populate.Create},
		"no answer":               {err: errors.New("connection refused"), failure: "list ConfigMap: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, client := clusterOfConfigMaps(t)
			client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, test.err
			})
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "u"}}
			compared, err := Compare(t.Context(), c, match.NewIndex(template), []*corev1.Namespace{ns}, Scope{})
			if test.failure != "" {
				require.EqualError(t, err, test.failure)
				return
			}
			require.NoError(t, err)
			changes := slices.Collect(compared.Namespaces(t.Context()))[0].Changes
			require.Len(t, changes, 1)
			require.Equal(t, test.action, changes[0].Action)
			if test.unreadable == "" {
				require.Empty(t, compared.Unreadable)
				return
			}
			require.Len(t, compared.Unreadable, 1)
			require.EqualError(t, compared.Unreadable[0], test.unreadable)
		})
	}
}

// If one of two lists of a kind fails, no plan has the objects of the other one.
func TestAKindOfWhichOneListFails(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	template.Spec.Templates = []runtime.RawExtension{
		{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}}`)},
		{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "missing"}}`)},
	}
	template.Status.Kinds = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	there := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "there", Namespace: "team-a", Labels: map[string]string{v1alpha1.TemplateNameLabel: "t"},
	}}
	there.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for _, kinds := range [][]v1alpha1.GroupKind{nil, template.Status.Kinds} {
		c, client := clusterOfConfigMaps(t, there)
		client.PrependReactor("list", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			selected := action.(clienttesting.ListAction).GetListRestrictions().Labels.String()
			return selected == populate.Unlabelled, nil, apierrors.NewTimeoutError("too many objects", 1)
		})
		template.Spec.Authoritative = kinds
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "u"}}
		compared, err := Compare(t.Context(), c, match.NewIndex(template), []*corev1.Namespace{ns}, Scope{})
		require.NoError(t, err)
		changes := slices.Collect(compared.Namespaces(t.Context()))[0].Changes
		require.Len(t, changes, 2)
		for _, change := range changes {
			require.Equal(t, populate.Unknown, change.Action, change.Reason)
		}
	}
}

func TestTwoVersionsOfANamespaceAreReadOnce(t *testing.T) {
	t.Parallel()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	template.Spec.Templates = []runtime.RawExtension{
		{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "same"}}`)},
		{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}, "data": {"of": "$(CREATOR)"}}`)},
	}
	c, client := clusterOfConfigMaps(t)
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

// A template that is gone leaves objects behind, which another template may delete.
func TestObjectsOfATemplateThatIsGone(t *testing.T) {
	t.Parallel()
	gone := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	gone.Status.Kinds = []v1alpha1.GroupKind{{Kind: "ConfigMap"}}
	other := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	other.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
	other.Spec.Authoritative = gone.Status.Kinds
	left := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "left", Namespace: "team-a", Labels: map[string]string{v1alpha1.TemplateNameLabel: "gone"},
	}}
	left.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	c, _ := clusterOfConfigMaps(t, left)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "u"}}
	scope := Scope{Gone: []*v1alpha1.NamespaceTemplate{gone}}
	compared, err := Compare(t.Context(), c, match.NewIndex(other), []*corev1.Namespace{ns}, scope)
	require.NoError(t, err)
	changes := slices.Collect(compared.Namespaces(t.Context()))[0].Changes
	require.Len(t, changes, 1)
	require.Equal(t, "left", changes[0].Name)
	require.Equal(t, populate.Prune, changes[0].Action)
	require.Equal(t, "other", changes[0].Template)
}

// One change is about the labels of all templates. Within the scope of a template, it has those of that template.
func TestTheScopeOfATemplateHasOnlyItsLabels(t *testing.T) {
	t.Parallel()
	labelling := func(name string) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
		template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: map[string]string{"of-" + name: "x"}}
		return template
	}
	c, _ := clusterOfConfigMaps(t)
	index := match.NewIndex(labelling("a"), labelling("b"))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "u"}}
	labels := func(template string) map[string]string {
		compared, err := Compare(t.Context(), c, index, []*corev1.Namespace{ns}, Scope{Template: template})
		require.NoError(t, err)
		changes := slices.Collect(compared.Namespaces(t.Context()))[0].Changes
		require.Len(t, changes, 1)
		sides, err := DryRun(t.Context(), c, ns.Name, changes[0])
		require.NoError(t, err)
		return sides.Stored.GetLabels()
	}
	require.Equal(t, map[string]string{"of-a": "x", "of-b": "x"}, labels(""))
	require.Equal(t, map[string]string{"of-b": "x"}, labels("b"))
}
