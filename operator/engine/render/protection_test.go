package render

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The annotation that protects objects from deletion is not reserved, but admission denies other values.
func TestProtectionHasTwoValues(t *testing.T) {
	t.Parallel()
	for value, valid := range map[string]bool{
		"true": true, "false": true, "True": false, "": false, "1": false, "$(NAMESPACE)": false, "$(CREATOR)": false,
	} {
		problems := CheckAnnotations(map[string]string{v1alpha1.DeletionProtectionAnnotation: value})
		if valid {
			require.Empty(t, problems, value)
			continue
		}
		require.Len(t, problems, 1, value)
		require.Equal(t, "annotations[policy.nstpl.dev/deletion-protection]", problems[0].Path)
		require.Contains(t, problems[0].Message, `is neither "true" nor "false"`)
	}
}

func TestDeclarationsThatMayBeProtected(t *testing.T) {
	t.Parallel()
	const plain = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}`
	const protected = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a",
		"annotations": {"policy.nstpl.dev/deletion-protection": "true"}}}`
	protection := map[string]string{v1alpha1.DeletionProtectionAnnotation: "true"}
	for name, test := range map[string]struct {
		object   string
		overlays []v1alpha1.Overlay
		want     bool
	}{
		"plain":                         {plain, nil, false},
		"protected":                     {protected, nil, true},
		"protected by an overlay":       {plain, []v1alpha1.Overlay{{Annotations: protection}}, true},
		"with another overlay":          {plain, []v1alpha1.Overlay{{Annotations: map[string]string{"a": "b"}}}, false},
		"protected by an overlay patch": {plain, []v1alpha1.Overlay{{Patches: []v1alpha1.Patch{{Patch: protected}}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := &v1alpha1.NamespaceTemplate{Spec: v1alpha1.NamespaceTemplateSpec{
				Templates: []runtime.RawExtension{{Raw: []byte(test.object)}}, Overlays: test.overlays,
			}}
			require.Equal(t, test.want, Declarations(template)[0].MayBeProtected)
		})
	}
}
