package manifest_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
)

func TestDecodeNamesFieldsAndNoTypesOfGo(t *testing.T) {
	tests := map[string]struct {
		text  string
		want  []manifest.Mistake
		whole bool
	}{
		"valid": {`{"rules": []}`, nil, true},
		"unknown fields": {
			`{"rule": [], "rules": [{"verb": []}]}`,
			[]manifest.Mistake{{"rule", `unknown field "rule"`}, {"rules[0].verb", `unknown field "rules[0].verb"`}}, true,
		},
		"another case": {`{"Rules": []}`, []manifest.Mistake{{"Rules", `unknown field "Rules"`}}, true},
		"a text instead of a list": {
			`{"rules": "all"}`, []manifest.Mistake{{"rules", "rules is a string: it must be a list"}}, false,
		},
		"an object instead of a text": {
			`{"metadata": {"name": {}}}`,
			[]manifest.Mistake{{"metadata.name", "metadata.name is an object: it must be a string"}}, false,
		},
		"a list instead of an object": {
			`{"metadata": []}`, []manifest.Mistake{{"metadata", "metadata is a list: it must be an object"}}, false,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mistakes, whole := manifest.Decode([]byte(test.text), &rbacv1.Role{})
			require.Equal(t, test.want, mistakes)
			require.Equal(t, test.whole, whole)
		})
	}
}

func TestDecodeParsesNoExcessiveQuantity(t *testing.T) {
	template := &v1alpha1.NamespaceTemplate{}
	mistakes, whole := manifest.Decode([]byte(`{"spec": {"sources": [{"maxSize": "1e-100"}]}}`), template)
	require.False(t, whole)
	require.Len(t, mistakes, 1)
	require.Equal(t, "spec.sources[0].maxSize", mistakes[0].Field)
	require.Contains(t, mistakes[0].Message, `spec.sources[0].maxSize is "1e-100": a quantity has at most`)
	require.Empty(t, template.Spec.Sources)
}
