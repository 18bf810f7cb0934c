package vetting

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/engine/render"
)

// An object of an overridden template is replaced by each object that may have its name, and by a copy without
// attributes if only a source has it.
func TestReplacements(t *testing.T) {
	t.Parallel()
	protected := &unstructured.Unstructured{}
	require.NoError(t, protected.UnmarshalJSON([]byte(labelled("a", "prod"))))
	for name, test := range map[string]struct {
		objects []string
		want    []string
	}{
		"the same name":         {[]string{labelled("a", "dev"), labelled("b", "")}, []string{"dev"}},
		"a name with a token":   {[]string{labelled("$(NAMESPACE)", "dev")}, []string{"dev"}},
		"several may have it":   {[]string{labelled("$(NAMESPACE)", "x"), labelled("a", "y")}, []string{"x", "y"}},
		"a copy of an object":   {nil, []string{""}},
		"another kind's object": {[]string{`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}`}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var variants []render.Variant
			if test.objects != nil {
				variants = variantsOf(t.Context(), templateWith(nil, test.objects...))
			}
			var got []string
			for _, lost := range replacements(protected, variants) {
				require.Equal(t, protected, lost.before)
				got = append(got, lost.now.GetLabels()["env"])
			}
			require.ElementsMatch(t, test.want, got)
		})
	}
}
