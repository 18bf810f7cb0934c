package match

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// templateOf returns a template whose label selector is given as YAML.
func templateOf(t testing.TB, name, selector string) *v1alpha1.NamespaceTemplate {
	t.Helper()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, yaml.UnmarshalStrict([]byte("labelSelector: "+selector), &template.Spec.Namespaces))
	return template
}

func namespaceOf(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestUnpopulatedNamespaces(t *testing.T) {
	now := metav1.Now()
	optOut := func(value string) map[string]string { return map[string]string{v1alpha1.OptOutAnnotation: value} }
	tests := []struct {
		name string
		ns   corev1.Namespace
		want string
	}{
		{"an ordinary namespace may be populated", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}, ""},
		{"default may be populated", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, ""},
		{
			"a name that contains kube-system may be populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "my-kube-system"}}, "",
		},
		{
			"a name that begins with kube may be populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kubeflow"}}, "",
		},
		{
			"a name that begins with an excluded name may be populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "excluded-2"}}, "",
		},
		{
			"a name that begins with kube- may be populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-x"}}, "",
		},
		{
			"a name that begins with kube-system may be populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system-2"}}, "",
		},
		{
			"kube-system is not populated", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
			"the namespaces of Kubernetes are never populated",
		},
		{
			"kube-public is not populated", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-public"}},
			"the namespaces of Kubernetes are never populated",
		},
		{
			"kube-node-lease is not populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-node-lease"}},
			"the namespaces of Kubernetes are never populated",
		},
		{"the operator's namespace is not populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace}},
			"the operator's own namespace is never populated"},
		{"an excluded namespace is not populated", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "excluded"}},
			"the operator excludes the namespace (flag --exclude-namespaces)"},
		{
			"a namespace with a deletion timestamp is not populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", DeletionTimestamp: &now}},
			"the namespace is being deleted",
		},
		{"a terminating namespace is not populated",
			corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "team-a"},
				Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
			},
			"the namespace is being deleted"},
		{"a namespace that is opted out is not populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Annotations: optOut("true")}},
			"the namespace is opted out (annotation policy/namespace-template-opt-out)"},
		{
			"opt-out false means that the namespace may be populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Annotations: optOut("false")}}, "",
		},
		{
			"opt-out True, in upper case, means that the namespace may be populated",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Annotations: optOut("True")}}, "",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, UnpopulatedReason(&test.ns, "excluded", "other"))
		})
	}
}

// The manuals, and the description of the field that selects namespaces, name the namespaces that are never populated.
func TestManualsNameTheNamespacesThatAreNeverPopulated(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"kinds.md", "templates.md", "install.md"} {
		content, err := os.ReadFile("../../../docs/" + page)
		require.NoError(t, err)
		lines := slices.Collect(strings.Lines(string(content)))
		at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "never populated") })
		require.GreaterOrEqual(t, at, 0, page)
		for _, name := range append(slices.Clone(systemNamespaces), v1alpha1.OperatorNamespace, v1alpha1.TrialNamespace) {
			require.Contains(t, lines[at], name, page)
		}
	}
}

func TestANamespaceCanBeOptedOutOfSomeTemplates(t *testing.T) {
	for value, want := range map[string][]string{
		"": nil, "true": nil, "false": nil, " , ": nil,
		"budget": {"budget"}, "b, a,b,": {"a", "b"}, "true,": {"true"}, "True": {"True"},
	} {
		ns := namespaceOf("team-a", nil)
		ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: value}
		require.Equal(t, want, OptedOutTemplates(ns), value)
		require.Equal(t, value == "true", OptedOut(ns), value)
		require.Equal(t, value == "true" || value == "budget", OptedOutOf(ns, "budget"), value)
		if value != "true" {
			require.Empty(t, UnpopulatedReason(ns), "the other templates populate it")
		}
	}
}

func TestTemplatesThatAreOff(t *testing.T) {
	now := metav1.Now()
	apply := func(value string) map[string]string {
		return map[string]string{v1alpha1.TemplateApplyAnnotation: value}
	}
	tests := []struct {
		name string
		meta metav1.ObjectMeta
		want string
	}{
		{"a template without annotations is on", metav1.ObjectMeta{}, ""},
		{"disable disables", metav1.ObjectMeta{Annotations: apply("disable")},
			"the template is disabled (annotation policy/namespace-template-apply: disable)"},
		{"another value does not disable", metav1.ObjectMeta{Annotations: apply("enable")}, ""},
		{
			"a template that is being deleted is off", metav1.ObjectMeta{DeletionTimestamp: &now},
			"the template is being deleted",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, DisabledReason(&v1alpha1.NamespaceTemplate{ObjectMeta: test.meta}))
		})
	}
}

func TestMissingSelectorIsAnError(t *testing.T) {
	_, err := Selector(v1alpha1.NamespaceSelector{})
	require.EqualError(t, err, "namespaces.labelSelector is missing: write {} to select every namespace")
}

func TestInvalidSelectorIsAnError(t *testing.T) {
	for name, selector := range map[string]string{
		"unknown operator":   "{matchExpressions: [{key: a, operator: Near, values: [b]}]}",
		"In without values":  "{matchExpressions: [{key: a, operator: In}]}",
		"Exists with values": "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
		"invalid key":        "{matchLabels: {'a b': c}}",
		"invalid value":      "{matchLabels: {a: 'b c'}}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Selector(templateOf(t, "a", selector).Spec.Namespaces)
			require.ErrorContains(t, err, "namespaces.labelSelector: ")
		})
	}
}

// The API server overwrites the label, so the value in a request or in a file for preview does not matter.
func TestTheNameLabelAlwaysHasTheNamespacesName(t *testing.T) {
	template := templateOf(t, "a", "{matchLabels: {kubernetes.io/metadata.name: team-a}}")
	require.True(t, Explain(template, namespaceOf("team-a", nil)).Matches)
	require.True(t,
		Explain(template, namespaceOf("team-a", map[string]string{corev1.LabelMetadataName: "team-a"})).Matches)
	require.True(t,
		Explain(template, namespaceOf("team-a", map[string]string{corev1.LabelMetadataName: "team-b"})).Matches)
	require.False(t,
		Explain(template, namespaceOf("team-b", map[string]string{corev1.LabelMetadataName: "team-a"})).Matches)

	given := map[string]string{"tier": "test"}
	Explain(template, namespaceOf("team-a", given))
	require.Equal(t, map[string]string{"tier": "test"}, given, "Explain does not change the namespace")
}

func TestIsSystemNamespace(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"kube-system": true, "kube-public": true, "kube-node-lease": true, "nstpl-system": true, "nstpl-trial": true,
		"default": false, "kube-team": false,
	} {
		require.Equal(t, want, IsSystemNamespace(name), name)
	}
}
