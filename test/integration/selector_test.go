package integration_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/test/marks"
)

// The test binds the policy that requires permission such that it warns and denies nothing. Its warnings name the
// templates that select a namespace, which must be those that Go's selectors find.
func TestAdmissionSelectsLikeGo(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	const rounds, templates, sets = 14, 9, 36
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "nstpl-template-use"},
	}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
	binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	require.NoError(t, s.client.Update(t.Context(), binding))
	config, err := s.controlPlane.UserConfig("jane", s.name("people"))
	require.NoError(t, err)
	s.newUser("jane") // grants the permission to create namespaces
	warnings := &warningRecorder{}
	config.WarningHandlerWithContext = warnings
	jane, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	named := regexp.MustCompile(`may not use NamespaceTemplate (.+), which`)
	selecting := func(name string, set labels.Set) []string {
		warnings.drain()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
		_, err := jane.CoreV1().Namespaces().Create(t.Context(), ns,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return []string{err.Error()}
		}
		var names []string
		for _, warning := range warnings.drain() {
			found := named.FindStringSubmatch(warning)
			require.NotNil(t, found, "%s", warning)
			names = append(names, strings.Split(found[1], " or ")...)
		}
		slices.Sort(names)
		return slices.Compact(names) // some warnings name the same templates
	}
	const seed = 42
	g := selectorGenerator{rand.New(rand.NewPCG(seed, 0))}
	matches := 0
	for round := range rounds {
		var all []*v1alpha1.NamespaceTemplate
		for i := range templates {
			all = append(all, g.template(fmt.Sprintf("t%d-%d", round, i), g.selector()))
		}
		last := g.template(fmt.Sprintf("u%d", round), &metav1.LabelSelector{})
		for _, template := range append(all, last) {
			require.NoError(t, s.client.Create(t.Context(), template))
		}
		s.eventually(func(c *assert.CollectT) { // the API server knows the last template after all others
			assert.Contains(c, selecting("a", labels.Set{"none": ""}), last.Name)
		})
		for range sets {
			name, set := g.name(), g.set()
			var want []string
			for _, template := range append(slices.Clone(all), last) {
				selector, err := metav1.LabelSelectorAsSelector(template.Spec.Namespaces.LabelSelector)
				require.NoError(t, err)
				if selector.Matches(labels.Merge(set, labels.Set{corev1.LabelMetadataName: name})) {
					want = append(want, template.Name)
				}
			}
			slices.Sort(want)
			matches += len(want)
			require.Equal(t, want, selecting(name, set), "seed %d: namespace %s, labels %v, templates %v", seed, name,
				set, all)
		}
		for _, template := range append(all, last) {
			s.delete(template)
		}
	}
	require.InDelta(t, 0.4, float64(matches)/float64(rounds*(templates+1)*sets), 0.25,
		"the selectors must neither match nearly always nor nearly never")
}

type selectorGenerator struct{ *rand.Rand }

func (g selectorGenerator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g selectorGenerator) key() string {
	return g.pick("a", "b", "example.com/c", "d", corev1.LabelMetadataName)
}

func (g selectorGenerator) value() string { return g.pick("", "x", "y", "z", "team-a") }

func (g selectorGenerator) name() string { return g.pick("x", "y", "team-a", "team-b") }

func (g selectorGenerator) set() labels.Set {
	set := labels.Set{}
	for range g.IntN(5) {
		set[g.pick("a", "b", "example.com/c", "d")] = g.value()
	}
	return set
}

func (g selectorGenerator) selector() *metav1.LabelSelector {
	selector := &metav1.LabelSelector{}
	for range g.IntN(2) {
		selector.MatchLabels = map[string]string{g.key(): g.value()}
	}
	for range g.IntN(3) {
		requirement := metav1.LabelSelectorRequirement{
			Key: g.key(), Operator: metav1.LabelSelectorOperator(g.pick("In", "NotIn", "Exists", "DoesNotExist")),
		}
		if requirement.Operator == metav1.LabelSelectorOpIn || requirement.Operator == metav1.LabelSelectorOpNotIn {
			for range 1 + g.IntN(3) {
				requirement.Values = append(requirement.Values, g.value())
			}
		}
		selector.MatchExpressions = append(selector.MatchExpressions, requirement)
	}
	return selector
}

func (g selectorGenerator) template(name string, selector *metav1.LabelSelector) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	requiresUse(template)
	template.Spec.Namespaces.LabelSelector = selector
	return template
}

// All policies that exclude the system's namespaces list the same ones as Go.
func TestAdmissionPoliciesExcludeSystemNamespaces(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	lists := regexp.MustCompile(`\['kube-[^\]]*\]`)
	for file, count := range map[string]int{"initialization.yaml": 1, "template-use.yaml": 1, "guards.yaml": 1} {
		text, err := os.ReadFile("../../manifests/admission/" + file)
		require.NoError(t, err)
		found := lists.FindAllString(string(text), -1)
		require.Len(t, found, count, file)
		require.Equal(t, count+1, len(strings.Split(string(text), "'kube-system'")),
			"%s: no other expression may list them", file)
		for _, list := range found {
			names := strings.Split(strings.Trim(list, "[]"), ", ")
			for _, name := range names {
				require.True(t, match.IsSystemNamespace(strings.Trim(name, "'")), name)
			}
			require.Len(t, names, 5)
		}
	}
	for _, name := range []string{"kube-", "kube-x", "kube-system-2", "nstpl-system-2", "default"} {
		require.False(t, match.IsSystemNamespace(name), name)
	}
}
