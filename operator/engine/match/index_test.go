package match

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func namesOf(templates []*v1alpha1.NamespaceTemplate) []string {
	names := make([]string, 0, len(templates))
	for _, template := range templates {
		names = append(names, template.Name)
	}
	return names
}

func TestMatchReturnsTemplatesInAscendingOrderOfNames(t *testing.T) {
	index := NewIndex(
		templateOf(t, "b", "{}"),
		templateOf(t, "a.b", "{matchLabels: {tier: test}}"),
		templateOf(t, "c", "{matchLabels: {kubernetes.io/metadata.name: team-a}}"),
		templateOf(t, "a", "{matchExpressions: [{key: tier, operator: Exists}]}"),
		templateOf(t, "a-b", "{matchExpressions: [{key: tier, operator: In, values: [test, dev]}]}"),
		templateOf(t, "B", "{}"),
		templateOf(t, "d", "{matchLabels: {tier: dev}}"),
	)
	require.Equal(t, []string{"B", "a", "a-b", "a.b", "b", "c"},
		namesOf(index.Match(namespaceOf("team-a", map[string]string{"tier": "test"}))))
	require.Equal(t, []string{"B", "b"}, namesOf(index.Match(namespaceOf("team-b", nil))))
	require.Equal(t, []string{"B", "a", "a-b", "a.b", "b", "c", "d"}, namesOf(index.All()))
}

func TestSetReplacesAndDeleteRemoves(t *testing.T) {
	index := NewIndex()
	ns := namespaceOf("team-a", map[string]string{"tier": "test"})
	match := func() []string { return namesOf(index.Match(ns)) }
	require.Empty(t, match())
	require.Nil(t, index.Get("a"))

	for _, selector := range []string{
		"{}", "{matchLabels: {tier: test}}", "{matchLabels: {kubernetes.io/metadata.name: team-a}}",
		"{matchExpressions: [{key: tier, operator: Exists}]}",
	} {
		template := templateOf(t, "a", selector)
		index.Set(template)
		require.Equal(t, []string{"a"}, match(), selector)
		require.Same(t, template, index.Get("a"))
	}
	for _, selector := range []string{
		"{matchLabels: {tier: dev}}", "{matchExpressions: [{key: tier, operator: In}]}", "null",
	} {
		template := templateOf(t, "a", selector)
		index.Set(template)
		require.Empty(t, match(), selector)
		require.Same(t, template, index.Get("a"), "a template that selects nothing is stored too")
	}
	disabled := templateOf(t, "a", "{}")
	disabled.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	index.Set(disabled)
	require.Empty(t, match())
	require.Same(t, disabled, index.Get("a"))

	index.Delete("a")
	require.Nil(t, index.Get("a"))
	index.Delete("a")
	require.Equal(t, NewIndex(), index, "Delete leaves nothing behind")
}

func TestSelectorsThatRequireALabelAreIndexedUnderIt(t *testing.T) {
	tests := []struct {
		selector string
		under    []label
	}{
		{"{}", nil},
		{"{matchLabels: {tier: test}}", []label{{key: "tier", value: "test"}}},
		{
			"{matchLabels: {a: b, kubernetes.io/metadata.name: team-a, z: z}}",
			[]label{{key: corev1.LabelMetadataName, value: "team-a"}},
		},
		{"{matchLabels: {tier: test}, matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [team-a]}]}",
			[]label{{key: corev1.LabelMetadataName, value: "team-a"}}},
		{
			"{matchExpressions: [{key: tier, operator: In, values: [test, dev]}]}",
			[]label{{key: "tier", value: "test"}, {key: "tier", value: "dev"}},
		},
		{"{matchExpressions: [{key: tier, operator: Exists}]}", []label{{key: "tier", anyValue: true}}},
		{
			"{matchExpressions: [{key: a, operator: Exists}, {key: tier, operator: In, values: [test]}]}",
			[]label{{key: "tier", value: "test"}},
		},
		{
			"{matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}, {key: z, operator: In, values: [b]}]}",
			[]label{{key: "z", value: "b"}},
		},
		{
			"{matchExpressions: [{key: a, operator: In, values: [b, c]}, {key: tier, operator: In, values: [test]}]}",
			[]label{{key: "tier", value: "test"}},
		},
		{
			"{matchLabels: {a: b}, matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [team-a, team-b]}]}",
			[]label{{key: corev1.LabelMetadataName, value: "team-a"}, {key: corev1.LabelMetadataName, value: "team-b"}},
		},
		{
			fmt.Sprintf("{matchExpressions: [{key: tier, operator: In, values: [%s]}]}", numbers(maxValues+1)),
			[]label{{key: "tier", anyValue: true}},
		},
		{"{matchExpressions: [{key: tier, operator: NotIn, values: [test]}]}", nil},
		{"{matchExpressions: [{key: tier, operator: DoesNotExist}]}", nil},
	}
	for _, test := range tests {
		t.Run(test.selector, func(t *testing.T) {
			index := NewIndex(templateOf(t, "a", test.selector))
			if test.under == nil {
				require.Contains(t, index.scanned, "a")
				return
			}
			require.Empty(t, index.scanned)
			for _, under := range test.under {
				require.Contains(t, index.byLabel[under], "a")
			}
			require.Len(t, index.byLabel, len(test.under))
		})
	}
}

// numbers returns the numbers below n as the values of a list in YAML.
func numbers(n int) string {
	var values []string
	for i := range n {
		values = append(values, fmt.Sprintf("n%d", i))
	}
	return strings.Join(values, ", ")
}

var (
	keys   = []string{"tier", "team", "example.dev/zone", corev1.LabelMetadataName}
	values = []string{"", "a", "b", "team-a", "team-b"}
)

func pick[T any](random *rand.Rand, from []T) T { return from[random.Intn(len(from))] }

// randomSelector returns a selector, which may be nil or invalid.
func randomSelector(random *rand.Rand) *metav1.LabelSelector {
	if random.Intn(20) == 0 {
		return nil
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for range random.Intn(3) {
		selector.MatchLabels[pick(random, keys)] = pick(random, values)
	}
	for range random.Intn(3) {
		requirement := metav1.LabelSelectorRequirement{
			Key: pick(random, keys),
			Operator: pick(random, []metav1.LabelSelectorOperator{
				metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
				metav1.LabelSelectorOpDoesNotExist,
			}),
		}
		few := requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpNotIn
		if few != (random.Intn(20) == 0) {
			for range 1 + random.Intn(2) {
				requirement.Values = append(requirement.Values, pick(random, values))
			}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

func randomTemplate(random *rand.Rand) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("template-%d",
		random.Intn(30))}}
	template.Spec.Namespaces.LabelSelector = randomSelector(random)
	switch random.Intn(20) {
	case 0:
		template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	case 1:
		now := metav1.Now()
		template.DeletionTimestamp = &now
	}
	return template
}

func randomNamespace(random *rand.Rand) *corev1.Namespace {
	ns := namespaceOf(pick(random, []string{"team-a", "team-b", "team-c"}), map[string]string{})
	for range random.Intn(4) {
		ns.Labels[pick(random, keys)] = pick(random, values)
	}
	if random.Intn(4) == 0 {
		ns.Annotations = map[string]string{
			v1alpha1.OptOutAnnotation: randomTemplate(random).Name + "," + randomTemplate(random).Name,
		}
	}
	return ns
}

func TestMatchAgreesWithExplain(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	index, known := NewIndex(), map[string]*v1alpha1.NamespaceTemplate{}
	matched, optedOut := 0, 0
	for range 3000 {
		if template := randomTemplate(random); random.Intn(3) == 0 {
			index.Delete(template.Name)
			delete(known, template.Name)
		} else {
			index.Set(template)
			known[template.Name] = template
		}
		ns := randomNamespace(random)
		want := []string{}
		for _, name := range slices.Sorted(maps.Keys(known)) {
			if verdict := Explain(known[name], ns); verdict.Matches {
				want = append(want, name)
			} else {
				require.NotEmpty(t, verdict.Reason)
			}
		}
		require.Equal(t, want, namesOf(index.Match(ns)))
		matched += len(want)
		for _, template := range index.OptedOut(ns) {
			require.Contains(t, OptedOutTemplates(ns), template.Name)
			require.Contains(t, Explain(template, ns).Reason, "the namespace is opted out of template "+template.Name)
			optedOut++
		}
	}
	require.Greater(t, matched, 3000, "most namespaces are selected by a template")
	require.Greater(t, optedOut, 100, "and some are opted out of one")
	for name := range known {
		index.Delete(name)
	}
	require.Equal(t, NewIndex(), index, "Delete leaves nothing behind")
}

// Of ten thousand templates that select one namespace each, Match tries one.
func BenchmarkMatchOneOfTenThousand(b *testing.B) {
	index := NewIndex()
	for i := range 10000 {
		index.Set(templateOf(b, fmt.Sprintf("template-%d", i),
			fmt.Sprintf("{matchLabels: {tier: test, kubernetes.io/metadata.name: team-%d}}", i)))
	}
	ns := namespaceOf("team-7777", map[string]string{"tier": "test", corev1.LabelMetadataName: "team-7777"})
	b.ReportAllocs()
	for b.Loop() {
		if len(index.Match(ns)) != 1 {
			b.Fatal("no match")
		}
	}
}
