package vetting

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestSelectorsThatNoNamespaceMeetsTogetherAreDisjoint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"{}", "{}", false},
		{"{}", "{matchLabels: {a: b}}", false},
		{"{matchLabels: {a: b}}", "{matchLabels: {a: b}}", false},
		{"{matchLabels: {a: b}}", "{matchLabels: {a: c}}", true},
		{"{matchLabels: {a: b}}", "{matchLabels: {c: d}}", false},
		{"{matchLabels: {a: b}}", "{matchExpressions: [{key: a, operator: NotIn, values: [b, c]}]}", true},
		{"{matchLabels: {a: b}}", "{matchExpressions: [{key: a, operator: NotIn, values: [c]}]}", false},
		{"{matchLabels: {a: b}}", "{matchExpressions: [{key: a, operator: DoesNotExist}]}", true},
		{"{matchLabels: {a: b}}", "{matchExpressions: [{key: a, operator: Exists}]}", false},
		{
			"{matchExpressions: [{key: a, operator: Exists}]}",
			"{matchExpressions: [{key: a, operator: DoesNotExist}]}", true,
		},
		{
			"{matchExpressions: [{key: a, operator: Exists}]}",
			"{matchExpressions: [{key: a, operator: NotIn, values: [b]}]}", false,
		},
		{
			"{matchExpressions: [{key: a, operator: In, values: [b, c]}]}",
			"{matchExpressions: [{key: a, operator: In, values: [c, d]}]}", false,
		},
		{"{matchExpressions: [{key: a, operator: Near}]}", "{matchLabels: {a: b}}", false},
	} {
		require.Equal(t, test.want, disjoint(selectorOf(t, test.a), selectorOf(t, test.b)), "%s %s", test.a, test.b)
		require.Equal(t, test.want, disjoint(selectorOf(t, test.b), selectorOf(t, test.a)), "%s %s", test.b, test.a)
	}
}

func selectorOf(t *testing.T, text string) v1alpha1.NamespaceSelector {
	t.Helper()
	selector := &metav1.LabelSelector{}
	require.NoError(t, yaml.Unmarshal([]byte(text), selector))
	return v1alpha1.NamespaceSelector{LabelSelector: selector}
}

func TestNamesThatMayCoincide(t *testing.T) {
	t.Parallel()
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	var declared []render.Declaration
	for _, name := range []string{"a", "b", "x-$(NAMESPACE)"} {
		declared = append(declared, render.Declaration{GroupVersionKind: kind, Name: name})
	}
	own := namesOf(declared)[kind.GroupKind()]
	for name, want := range map[string]bool{
		"a": true, "c": false, "x-y": true, "$(NAMESPACE)": true, "$(CREATOR)-z": true, "c$(NAMESPACE)": false,
	} {
		require.Equal(t, want, own.mayHave(name), name)
	}
	require.False(t, (*names)(nil).mayHave("a"))
}
