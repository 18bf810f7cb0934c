package drift

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"
	kubetesting "k8s.io/client-go/testing"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// What another client creates or replaces after the comparison is not overwritten, and does not become nstpl's.
func TestRestoreAppliesOnlyWhatItCompared(t *testing.T) {
	t.Parallel()
	populated := metav1.ObjectMeta{
		Name: "own", Namespace: "team-a", UID: "before", ResourceVersion: "5",
		Labels:      map[string]string{v1alpha1.TemplateNameLabel: "t"},
		Annotations: map[string]string{v1alpha1.HashAnnotation: "former"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + v1alpha1.HashAnnotation + `":{}}}}`),
		}},
	}
	for name, test := range map[string]struct {
		observed []*metav1.PartialObjectMetadata
		want     metav1.ObjectMeta
	}{
		"missing":  {nil, metav1.ObjectMeta{ResourceVersion: "1"}}, // no object has this one
		"compared": {[]*metav1.PartialObjectMetadata{{ObjectMeta: populated}}, populated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := inRollout(t, map[string]string{"own": "{}"}, map[string]string{"own": "{}"})
			declared := survey.Declare(render.NewCache(), nil, p.index, p.namespace)
			for _, object := range test.observed {
				object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			}
			p.plan = populate.NewPlan(declared.Declared, p.index, populate.Observed{Objects: test.observed})
			objects := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, &corev1.ConfigMap{ObjectMeta: populated})
			metadataScheme := metadatafake.NewTestScheme()
			require.NoError(t, metav1.AddMetaToScheme(metadataScheme))
			p.cluster.Dynamic, p.cluster.Metadata = objects, metadatafake.NewSimpleMetadataClient(metadataScheme)
			var sent metav1.PartialObjectMetadata
			conflict := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "own", nil)
			objects.PrependReactor("patch", "*", func(action kubetesting.Action) (bool, runtime.Object, error) {
				patch, isPatch := action.(kubetesting.PatchAction)
				require.True(t, isPatch)
				require.NoError(t, json.Unmarshal(patch.GetPatch(), &sent))
				return true, nil, conflict
			})

			result, err := new(restore).restore(t.Context(), p, p.plan.Changes)
			require.NoError(t, err)
			require.Len(t, result.Outcomes, 1)
			require.ErrorIs(t, result.Outcomes[0].Failure, conflict)
			require.Equal(t, test.want.UID, sent.UID)
			require.Equal(t, test.want.ResourceVersion, sent.ResourceVersion)
		})
	}
}

// What was not written, because the namespace ended before, is not called restored, although it exists.
func TestWhatWasNotWrittenIsNotRestored(t *testing.T) {
	t.Parallel()
	p := inRollout(t, map[string]string{"own": "{}"}, map[string]string{"own": "{}"})
	p.cluster.Dynamic = dynamicfake.NewSimpleDynamicClient(scheme.Scheme,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "own", Namespace: "team-a"}})
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := &restore{Session: cli.NewSession(streams)}
	change, err := p.find(t.Context(), "configmap/own")
	require.NoError(t, err)
	require.EqualError(t, o.print(t.Context(), p, change, populate.Result{}),
		"configmap/own in namespace team-a was not restored, because another object could not be written")
	require.Empty(t, out.String())
}
