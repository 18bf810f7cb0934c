package match

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// templateOf returns a template with a label selector written in YAML.
func templateOf(t testing.TB, name, selector string) *v1alpha1.NamespaceTemplate {
	t.Helper()
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, yaml.UnmarshalStrict([]byte("labelSelector: "+selector), &template.Spec.Namespaces))
	return template
}

func namespaceOf(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestUnpopulated(t *testing.T) {
	now := metav1.Now()
	optOut := func(value string) map[string]string { return map[string]string{v1alpha1.OptOutAnnotation: value} }
	tests := []struct {
		name string
		ns   corev1.Namespace
		want string
	}{
		{"a namespace", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}, ""},
		{"default", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, ""},
		{"a name that only holds kube-", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "my-kube-system"}}, ""},
		{"a name that only starts with kube", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kubeflow"}}, ""},
		{
			"a name that only starts with an excluded one",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "excluded-2"}}, "",
		},
		{
			"a name that only begins like Kubernetes' own",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-x"}}, "",
		},
		{
			"a name that only begins with kube-system",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system-2"}}, "",
		},
		{
			"kube-system", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
			"the namespaces of Kubernetes are never populated",
		},
		{
			"kube-public", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-public"}},
			"the namespaces of Kubernetes are never populated",
		},
		{
			"kube-node-lease", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-node-lease"}},
			"the namespaces of Kubernetes are never populated",
		},
		{"the operator's", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace}},
			"the operator's own namespace is never populated"},
		{"excluded", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "excluded"}},
			"the operator is told to leave the namespace alone (--exclude-namespaces)"},
		{
			"deleted", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", DeletionTimestamp: &now}},
			"the namespace is being deleted",
		},
		{"terminating",
			corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: "team-a"},
				Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
			},
			"the namespace is being deleted"},
		{"opted out", corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Annotations: optOut("true")}},
			"the namespace is opted out (annotation policy/namespace-template-opt-out)"},
		{
			"opted in again",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Annotations: optOut("false")}}, "",
		},
		{
			"opted out in other letters",
			corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Annotations: optOut("True")}}, "",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, Unpopulated(&test.ns, "excluded", "other"))
		})
	}
}

func TestOff(t *testing.T) {
	now := metav1.Now()
	apply := func(value string) map[string]string {
		return map[string]string{v1alpha1.TemplateApplyAnnotation: value}
	}
	tests := []struct {
		name string
		meta metav1.ObjectMeta
		want string
	}{
		{"on", metav1.ObjectMeta{}, ""},
		{"switched off", metav1.ObjectMeta{Annotations: apply("disable")},
			"the template is switched off (annotation policy/namespace-template-apply: disable)"},
		{"another value", metav1.ObjectMeta{Annotations: apply("enable")}, ""},
		{"being deleted", metav1.ObjectMeta{DeletionTimestamp: &now}, "the template is being deleted"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, Off(&v1alpha1.NamespaceTemplate{ObjectMeta: test.meta}))
		})
	}
}

func TestSelectorThatIsNotThereSelectsNothing(t *testing.T) {
	_, err := Selector(v1alpha1.NamespaceSelector{})
	require.EqualError(t, err, "namespaces.labelSelector is missing: write {} to select every namespace")
}

func TestSelectorThatIsMalformedSelectsNothing(t *testing.T) {
	for name, selector := range map[string]string{
		"operator":        "{matchExpressions: [{key: a, operator: Near, values: [b]}]}",
		"In of nothing":   "{matchExpressions: [{key: a, operator: In}]}",
		"Exists of some":  "{matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
		"malformed key":   "{matchLabels: {'a b': c}}",
		"malformed value": "{matchLabels: {a: 'b c'}}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Selector(templateOf(t, "a", selector).Spec.Namespaces)
			require.ErrorContains(t, err, "namespaces.labelSelector: ")
		})
	}
}

// The API server overwrites the label, so what a request or a person at preview says of it doesn't count.
func TestANamespaceCarriesItsName(t *testing.T) {
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
	require.Equal(t, map[string]string{"tier": "test"}, given, "the namespace is left as it is")
}
