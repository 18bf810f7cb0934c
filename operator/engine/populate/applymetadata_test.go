package populate

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// A namespace that another client changed meanwhile is written all the same if it is open and the plan does not depend
// on the change. One that is initializing is written only as it was read, since what it has decides when it opens.
func TestMetadataOfAChangedNamespace(t *testing.T) {
	t.Parallel()
	scheme := metadatafake.NewTestScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", UID: "t"}}
	namespace := func(labels, annotations map[string]string, version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "n", UID: "n", ResourceVersion: version, Labels: labels, Annotations: annotations,
			},
		}
	}
	initializing := map[string]string{v1alpha1.InitializingLabel: ""}
	of := func(pairs ...string) map[string]string {
		values := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			values[pairs[i]] = pairs[i+1]
		}
		return values
	}
	for name, test := range map[string]struct {
		before              map[string]string
		labels, annotations map[string]string
		// version is the resourceVersion of the second write, or "none" if there is no second write.
		version string
	}{
		"open, another label":       {of(), of("other", "x"), of(), ""},
		"open, another annotation":  {of(), of(), of("other", "x"), ""},
		"open, the same label":      {of(), of("tier", "x"), of(), "none"},
		"open, the record":          {of(), of(), of(v1alpha1.ExistingAnnotation, "x"), "none"},
		"open, the record of these": {of(), of(), of(v1alpha1.NamespaceMetadataAnnotation, "x"), "none"},
		"initializing, another label": {
			initializing, of(v1alpha1.InitializingLabel, "", "other", "x"), of(), "none",
		},
		"initializing, user IDs": {initializing, initializing, of(v1alpha1.UIDRangeAnnotation, "x"), "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := metadatafake.NewSimpleMetadataClient(scheme)
			client.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
				list := &metav1.List{Items: []runtime.RawExtension{{Object: namespace(test.labels, test.annotations, "2")}}}
				return true, list, nil
			})
			var versions []string
			client.PrependReactor("patch", "namespaces", func(a clienttesting.Action) (bool, runtime.Object, error) {
				var body metav1.PartialObjectMetadata
				require.NoError(t, json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &body))
				versions = append(versions, body.ResourceVersion)
				if len(versions) == 1 {
					return true, nil, apierrors.NewConflict(corev1.Resource("namespaces"), "n", nil)
				}
				return true, namespace(test.labels, test.annotations, "3"), nil
			})
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", Labels: test.before}}
			value := &DeclaredValue{render.MetadataKey{Field: render.Labels, Key: "tier"}, "gold", template}
			change := Change{
				Name: "n", Observed: namespace(test.before, nil, "1"),
				Metadata: &MetadataChange{namespace: ns, Values: []ValueChange{{
					MetadataKey: value.MetadataKey, Template: "t", Declared: value, Action: Create,
				}}},
			}
			_, err := (&Applier{client: client}).applyMetadata(t.Context(), change)
			if test.version == "none" {
				require.True(t, apierrors.IsConflict(err), "%v", err)
				require.Equal(t, []string{"1"}, versions)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{"1", test.version}, versions)
		})
	}
}
