package match

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestExplain(t *testing.T) {
	tests := []struct {
		name, selector string
		labels         map[string]string
		matches        bool
		reason         string
	}{
		{"everything", "{}", nil, true, "selects every namespace"},
		{"a label", "{matchLabels: {tier: test}}", map[string]string{"tier": "test"}, true, "labels match tier=test"},
		{
			"another value", "{matchLabels: {tier: test}}", map[string]string{"tier": "dev"}, false,
			`label tier is "dev", not "test"`,
		},
		{"no such label", "{matchLabels: {tier: test}}", nil, false, `label tier is missing, not "test"`},
		{"an empty value", "{matchLabels: {tier: ''}}", nil, false, `label tier is missing, not ""`},
		{
			"the name", "{matchLabels: {kubernetes.io/metadata.name: team-b}}", nil, false,
			`label kubernetes.io/metadata.name is "team-a", not "team-b"`,
		},
		{
			"In", "{matchExpressions: [{key: tier, operator: In, values: [test, dev]}]}",
			map[string]string{"tier": "dev"}, true, "labels match tier in (dev,test)",
		},
		{"not In", "{matchExpressions: [{key: tier, operator: In, values: [test, dev]}]}",
			map[string]string{"tier": "prod"}, false,
			`label tier is "prod", not "dev" or "test"`},
		{
			"NotIn", "{matchExpressions: [{key: tier, operator: NotIn, values: [test]}]}",
			map[string]string{"tier": "prod"}, true, "labels match tier notin (test)",
		},
		{
			"NotIn of a missing label", "{matchExpressions: [{key: tier, operator: NotIn, values: [test]}]}", nil, true,
			"labels match tier notin (test)",
		},
		{"In where NotIn is asked", "{matchExpressions: [{key: tier, operator: NotIn, values: [test, dev]}]}",
			map[string]string{"tier": "dev"}, false,
			`label tier is "dev", and may not be "dev" or "test"`},
		{
			"Exists", "{matchExpressions: [{key: tier, operator: Exists}]}", map[string]string{"tier": ""}, true,
			"labels match tier",
		},
		{"not there", "{matchExpressions: [{key: tier, operator: Exists}]}", nil, false, "label tier is missing"},
		{"DoesNotExist", "{matchExpressions: [{key: tier, operator: DoesNotExist}]}", nil, true, "labels match !tier"},
		{
			"there", "{matchExpressions: [{key: tier, operator: DoesNotExist}]}", map[string]string{"tier": "a"}, false,
			"label tier is there, and may not be",
		},
		{"the first that fails", "{matchLabels: {b: x, a: x}}", nil, false, `label a is missing, not "x"`},
		{
			"one that fails", "{matchLabels: {b: x, a: x}}", map[string]string{"a": "x"}, false,
			`label b is missing, not "x"`,
		},
		{"malformed", "{matchExpressions: [{key: tier, operator: In}]}", nil, false,
			"namespaces.labelSelector: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"},
		{"nothing", "null", nil, false, "namespaces.labelSelector is missing: write {} to select every namespace"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, Verdict{Template: "policies", Matches: test.matches, Reason: test.reason},
				Explain(templateOf(t, "policies", test.selector), namespaceOf("team-a", test.labels)))
		})
	}
}

func TestExplainSaysThatATemplateIsOffFirst(t *testing.T) {
	template := templateOf(t, "policies", "{}")
	template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	template.Spec.Overlays = []v1alpha1.Overlay{{
		Name: "all", Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{}},
	}}
	require.Equal(t, Verdict{Template: "policies", Reason: Off(template)},
		Explain(template, namespaceOf("team-a", nil)))
}

func TestOverlaysThatApply(t *testing.T) {
	template := templateOf(t, "policies", "{matchLabels: {team: a}}")
	for _, overlay := range []struct{ name, selector string }{
		{"zebra", "{matchLabels: {tier: test}}"},
		{"malformed", "{matchExpressions: [{key: tier, operator: In, values: []}]}"},
		{"missing", "null"},
		{"all", "{}"},
		{"named", "{matchLabels: {kubernetes.io/metadata.name: team-a}}"},
	} {
		template.Spec.Overlays = append(template.Spec.Overlays,
			v1alpha1.Overlay{Name: overlay.name, Namespaces: templateOf(t, "", overlay.selector).Spec.Namespaces})
	}
	require.Equal(t, []string{"zebra", "all", "named"},
		Overlays(template, namespaceOf("team-a", map[string]string{"tier": "test"})), "in the template's order")
	require.Equal(t, []string{"all"}, Overlays(template, namespaceOf("team-b", nil)))

	verdict := Explain(template, namespaceOf("team-b", map[string]string{"team": "a"}))
	require.Equal(t, []string{"all"}, verdict.Overlays)
	require.Empty(t, Explain(template, namespaceOf("team-b", nil)).Overlays,
		"a template that does not match has none that apply")
}
