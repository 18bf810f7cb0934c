package vetting

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

func selectorOf(t *testing.T, text string) requirements {
	t.Helper()
	selector := &metav1.LabelSelector{}
	require.NoError(t, yaml.Unmarshal([]byte(text), selector))
	return requirementsOf(v1alpha1.NamespaceSelector{LabelSelector: selector})
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

func TestOutlinesFollowTheTemplates(t *testing.T) {
	t.Parallel()
	template := func(name string, uid types.UID, generation int64, object string) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{}
		template.Name, template.UID, template.Generation = name, uid, generation
		template.Spec.Templates = []runtime.RawExtension{{Raw: []byte(
			`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "` + object + `"}}`)}}
		return template
	}
	isSynced := false
	o := &Outlines{byName: map[string]*outlined{}, synced: func() bool { return isSynced }}
	declared := func(except string) map[string]string {
		others, err := o.except(t.Context(), except)
		require.NoError(t, err)
		names := map[string]string{}
		for _, other := range others {
			names[other.name] = other.objects[0].Name
		}
		return names
	}
	o.changed(nil, template("a", "1", 1, "x"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := o.except(ended, "b")
	require.ErrorContains(t, err, "list the other templates", "some may be missing")

	isSynced = true
	o.changed(nil, template("b", "2", 1, "y"))
	require.Equal(t, map[string]string{"a": "x", "b": "y"}, declared("c"))
	require.Equal(t, map[string]string{"b": "y"}, declared("a"))
	o.changed(nil, template("a", "1", 1, "never read, since the generation is the same"))
	o.changed(nil, template("b", "2", 2, "changed"))
	require.Equal(t, map[string]string{"a": "x", "b": "changed"}, declared(""))
	o.changed(nil, template("a", "3", 1, "created again"))
	o.changed(template("b", "2", 2, ""), nil)
	require.Equal(t, map[string]string{"a": "created again"}, declared(""))
}
