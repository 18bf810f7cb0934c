package initialize

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func namespaceOf(pending string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:        "team-a",
		Labels:      map[string]string{"tier": "test", v1alpha1.InitializingLabel: "true"},
		Annotations: map[string]string{v1alpha1.PendingAnnotation: pending},
	}}
}

func configurationsOf(t *testing.T, initializers ...string) []v1alpha1.NamespaceInitializationConfiguration {
	t.Helper()
	var all []v1alpha1.NamespaceInitializationConfiguration
	for _, text := range initializers {
		var configuration v1alpha1.NamespaceInitializationConfiguration
		require.NoError(t, yaml.UnmarshalStrict([]byte("initializers: ["+text+"]"), &configuration))
		all = append(all, configuration)
	}
	return all
}

func TestPendingListsEachInitializerOnce(t *testing.T) {
	for list, want := range map[string][]string{
		"":                               nil,
		" , ,":                           nil,
		"namespace-template":             {"namespace-template"},
		"b.example.com,a.example.com":    {"b.example.com", "a.example.com"},
		" a , b,a,,b ,c":                 {"a", "b", "c"},
		"namespace-template,a\n,\tb\r\n": {"namespace-template", "a", "b"},
	} {
		require.Equal(t, want, Pending(namespaceOf(list)), "%q", list)
	}
	require.Empty(t, Pending(&corev1.Namespace{}))
}

// Admission adds to a list that it has read. An initializer must not be lost because the sum is longer.
func TestPendingReadsMoreThanUsersMayRequest(t *testing.T) {
	list := strings.Repeat("a,b,", 100_000) + v1alpha1.TemplateInitializer
	require.Equal(t, []string{"a", "b", v1alpha1.TemplateInitializer}, Pending(namespaceOf(list)))
	require.Empty(t, Requested(namespaceOf(list)))
}

func TestInitializingIfAndOnlyIfTheLabelExists(t *testing.T) {
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		want                bool
	}{
		"no labels":     {want: false},
		"another label": {labels: map[string]string{"tier": "test"}, want: false},
		"label is true": {
			labels: map[string]string{v1alpha1.InitializingLabel: "true"}, want: true,
		},
		"label is empty": {labels: map[string]string{v1alpha1.InitializingLabel: ""}, want: true},
		"label is false": {
			labels: map[string]string{v1alpha1.InitializingLabel: "false"}, want: true,
		},
		"annotation lists an initializer": {
			annotations: map[string]string{v1alpha1.PendingAnnotation: "a"}, want: false,
		},
		"annotation with the label's key": {
			annotations: map[string]string{v1alpha1.InitializingLabel: "true"}, want: false,
		},
		"label, and nothing is pending": {
			labels:      map[string]string{v1alpha1.InitializingLabel: "true"},
			annotations: map[string]string{v1alpha1.PendingAnnotation: ""}, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "team-a", Labels: test.labels, Annotations: test.annotations,
			}}
			require.Equal(t, test.want, Initializing(ns))
		})
	}
}

func TestJudge(t *testing.T) {
	const (
		network = "{name: network.example.com, namespaceSelector: {}, timeoutSeconds: 60, failurePolicy: Fail}"
		dns     = "{name: dns.example.com, namespaceSelector: {}, timeoutSeconds: 30, failurePolicy: Ignore}"
	)
	timedOut := func(name string, timeout int32, policy v1alpha1.FailurePolicy) v1alpha1.Initializer {
		return v1alpha1.Initializer{
			Name: name, NamespaceSelector: &metav1.LabelSelector{}, TimeoutSeconds: timeout, FailurePolicy: policy,
		}
	}
	tests := []struct {
		name, pending string
		initializers  []string
		populated     bool
		age           int64
		want          Verdict
	}{
		{name: "an empty list stays empty", populated: true},
		{name: "an empty list stays empty before the namespace is populated"},
		{name: "a populated namespace waits for nothing else", pending: "namespace-template", populated: true},
		{
			name: "a namespace waits until it is populated", pending: "namespace-template",
			want: Verdict{Pending: []string{"namespace-template"}},
		},
		{name: "a populated namespace waits for other initializers",
			pending:      "network.example.com,namespace-template,dns.example.com",
			initializers: []string{network, dns}, populated: true, age: 29,
			want: Verdict{Pending: []string{"network.example.com", "dns.example.com"}, NextTimeout: 30}},
		{name: "an initializer with Ignore is dropped when it times out",
			pending:      "namespace-template,network.example.com,dns.example.com",
			initializers: []string{network, dns}, age: 30,
			want: Verdict{Pending: []string{"namespace-template", "network.example.com"}, NextTimeout: 60,
				TimedOut: []v1alpha1.Initializer{timedOut("dns.example.com", 30, v1alpha1.FailureIgnore)}}},
		{name: "an initializer with Fail stays when it times out", pending: "network.example.com",
			initializers: []string{network, dns},
			populated:    true, age: 60,
			want: Verdict{Pending: []string{"network.example.com"},
				TimedOut: []v1alpha1.Initializer{timedOut("network.example.com", 60, v1alpha1.FailureFail)}}},
		{name: "an initializer does not time out while the clock is behind", pending: "dns.example.com",
			initializers: []string{dns}, populated: true,
			age:  -5,
			want: Verdict{Pending: []string{"dns.example.com"}, NextTimeout: 30}},
		{name: "a namespace that is not populated does not time out", pending: "namespace-template", age: 1 << 40,
			want: Verdict{Pending: []string{"namespace-template"}}},
		{name: "the next timeout is the shortest that has not passed", pending: "dns.example.com,network.example.com",
			initializers: []string{network, dns}, populated: true, age: 30,
			want: Verdict{Pending: []string{"network.example.com"}, NextTimeout: 60,
				TimedOut: []v1alpha1.Initializer{timedOut("dns.example.com", 30, v1alpha1.FailureIgnore)}}},
		{name: "an initializer that is listed twice is judged once", pending: "dns.example.com,dns.example.com",
			initializers: []string{dns}, populated: true, age: 30,
			want: Verdict{TimedOut: []v1alpha1.Initializer{timedOut("dns.example.com", 30, v1alpha1.FailureIgnore)}}},
		{name: "the default failure policy is stricter than Ignore", pending: "dns.example.com", populated: true,
			age:          30,
			initializers: []string{dns, "{name: dns.example.com, namespaceSelector: {}, timeoutSeconds: 10}"},
			want: Verdict{Pending: []string{"dns.example.com"},
				TimedOut: []v1alpha1.Initializer{timedOut("dns.example.com", 30, "")}}},
		{name: "an entry that no configuration declares is dropped", pending: "namespace-template,gone.example.com",
			initializers: []string{network, dns},
			populated:    true,
			want:         Verdict{Unknown: []string{"gone.example.com"}}},
		{name: "the strictest of the declarations that select the namespace applies", pending: "dns.example.com",
			populated: true, age: 90,
			initializers: []string{dns,
				"{name: dns.example.com, namespaceSelector: {matchLabels: {tier: test}}, timeoutSeconds: 90, failurePolicy: Fail}",
				"{name: dns.example.com, namespaceSelector: {matchLabels: {tier: other}}, timeoutSeconds: 600, failurePolicy: Fail}",
				"{name: dns.example.com, namespaceSelector: {matchExpressions: [{key: tier, operator: In}]}, timeoutSeconds: 600}"},
			want: Verdict{Pending: []string{"dns.example.com"},
				TimedOut: []v1alpha1.Initializer{timedOut("dns.example.com", 90, v1alpha1.FailureFail)}}},
		{name: "all declarations apply when none selects the namespace any more", pending: "a.example.com",
			populated: true, age: 100,
			initializers: []string{
				"{name: a.example.com, namespaceSelector: {matchLabels: {tier: other}}, timeoutSeconds: 120, failurePolicy: Ignore}",
				"{name: a.example.com, namespaceSelector: {matchLabels: {tier: prod}}, timeoutSeconds: 60, failurePolicy: Fail}"},
			want: Verdict{Pending: []string{"a.example.com"}, NextTimeout: 120}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want,
				Judge(namespaceOf(test.pending), configurationsOf(t, test.initializers...), test.populated, test.age))
		})
	}
}

func TestCheckNamesEveryInitializerWithAnInvalidSelector(t *testing.T) {
	valid := configurationsOf(t,
		"{name: a, namespaceSelector: {}}, {name: b, namespaceSelector: {matchLabels: {tier: test}}}")
	require.NoError(t, Check(&valid[0]))
	invalid := configurationsOf(t, "{name: a, namespaceSelector: {matchExpressions: [{key: tier, operator: In}]}}, "+
		"{name: b, namespaceSelector: {}}, {name: c, namespaceSelector: {matchLabels: {tier: a b}}}")
	err := Check(&invalid[0])
	require.ErrorContains(t, err, "initializer a: namespaceSelector: ")
	require.ErrorContains(t, err, "initializer c: namespaceSelector: ")
	require.NotContains(t, err.Error(), "initializer b")
}
