package match

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestExplainGivesTheReason(t *testing.T) {
	tests := []struct {
		name, selector string
		labels         map[string]string
		matches        bool
		reason         string
	}{
		{"the empty selector selects every namespace", "{}", nil, true, "selects every namespace"},
		{
			"matchLabels selects an equal value", "{matchLabels: {tier: test}}", map[string]string{"tier": "test"},
			true, "labels match tier=test",
		},
		{
			"matchLabels rejects another value", "{matchLabels: {tier: test}}", map[string]string{"tier": "dev"}, false,
			`label tier is "dev", not "test"`,
		},
		{
			"matchLabels rejects a missing label", "{matchLabels: {tier: test}}", nil, false,
			`label tier is missing, not "test"`,
		},
		{
			"a missing label is not an empty value", "{matchLabels: {tier: ''}}", nil, false,
			`label tier is missing, not ""`,
		},
		{
			"every namespace has a label with its name", "{matchLabels: {kubernetes.io/metadata.name: team-b}}", nil,
			false,
			`label kubernetes.io/metadata.name is "team-a", not "team-b"`,
		},
		{
			"In selects any of the values", "{matchExpressions: [{key: tier, operator: In, values: [test, dev]}]}",
			map[string]string{"tier": "dev"}, true, "labels match tier in (dev,test)",
		},
		{"In rejects another value", "{matchExpressions: [{key: tier, operator: In, values: [test, dev]}]}",
			map[string]string{"tier": "prod"}, false,
			`label tier is "prod", not "dev" or "test"`},
		{
			"NotIn selects another value", "{matchExpressions: [{key: tier, operator: NotIn, values: [test]}]}",
			map[string]string{"tier": "prod"}, true, "labels match tier notin (test)",
		},
		{
			"NotIn selects a missing label", "{matchExpressions: [{key: tier, operator: NotIn, values: [test]}]}", nil,
			true,
			"labels match tier notin (test)",
		},
		{"NotIn rejects any of the values", "{matchExpressions: [{key: tier, operator: NotIn, values: [test, dev]}]}",
			map[string]string{"tier": "dev"}, false,
			`label tier is "dev", and must not be "dev" or "test"`},
		{
			"Exists selects any value", "{matchExpressions: [{key: tier, operator: Exists}]}",
			map[string]string{"tier": ""}, true,
			"labels match tier",
		},
		{
			"Exists rejects a missing label", "{matchExpressions: [{key: tier, operator: Exists}]}", nil, false,
			"label tier is missing",
		},
		{
			"DoesNotExist selects a missing label", "{matchExpressions: [{key: tier, operator: DoesNotExist}]}", nil,
			true, "labels match !tier",
		},
		{
			"DoesNotExist rejects any value", "{matchExpressions: [{key: tier, operator: DoesNotExist}]}",
			map[string]string{"tier": "a"}, false,
			"label tier exists, and must not",
		},
		{
			"the reason is the first requirement that fails", "{matchLabels: {b: x, a: x}}", nil, false,
			`label a is missing, not "x"`,
		},
		{
			"requirements that hold are not a reason", "{matchLabels: {b: x, a: x}}", map[string]string{"a": "x"},
			false,
			`label b is missing, not "x"`,
		},
		{"an invalid selector selects nothing", "{matchExpressions: [{key: tier, operator: In}]}", nil, false,
			"namespaces.labelSelector: values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"},
		{
			"a missing selector selects nothing", "null", nil, false,
			"namespaces.labelSelector is missing: write {} to select every namespace",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			isUnrelated := strings.Contains(test.reason, " is missing, not ") || test.reason == "label tier is missing" ||
				strings.HasPrefix(test.reason, "label kubernetes.io/metadata.name is ")
			require.Equal(t,
				Verdict{Template: "policies", Matches: test.matches, Reason: test.reason, IsUnrelated: isUnrelated},
				Explain(templateOf(t, "policies", test.selector), namespaceOf("team-a", test.labels)))
		})
	}
}

func TestExplainReportsADisabledTemplateFirst(t *testing.T) {
	template := templateOf(t, "policies", "{}")
	template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	template.Spec.Overlays = []v1alpha1.Overlay{{
		Name: "all", Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{}},
	}}
	require.Equal(t, Verdict{Template: "policies", Reason: DisabledReason(template)},
		Explain(template, namespaceOf("team-a", nil)))
}

func TestOverlaysApplyInTheTemplatesOrder(t *testing.T) {
	template := templateOf(t, "policies", "{matchLabels: {team: a}}")
	for _, overlay := range []struct{ name, selector string }{
		{"zebra", "{matchLabels: {tier: test}}"},
		{"invalid", "{matchExpressions: [{key: tier, operator: In, values: []}]}"},
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
		"no overlay applies if the template does not select the namespace")
}
