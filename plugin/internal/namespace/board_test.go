package namespace

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

func namespaceIn(name, tier string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier}}}
}

func templateFor(name, tier string, generation int64) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}
	return template
}

// summaries returns each changed status in one line, in the order of the names.
func summaries(b *board) []string {
	lines := []string{}
	for _, s := range b.changes() {
		line := s.Namespace + " " + s.Reason
		for _, template := range s.Templates {
			line += " " + template
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func TestBoardShowsANamespaceAgainOnlyIfItsStatusChanged(t *testing.T) {
	b := &board{}
	show := func(templates []*v1alpha1.NamespaceTemplate, namespaces ...*corev1.Namespace) []string {
		b.index, b.namespaces = match.NewIndex(templates...), namespaces
		return summaries(b)
	}
	a, x := namespaceIn("a", "one"), templateFor("x", "one", 1)
	of := func(templates ...*v1alpha1.NamespaceTemplate) []*v1alpha1.NamespaceTemplate { return templates }
	require.Equal(t, []string{"a NotReported x"}, show(of(x), a, namespaceIn("b", "two")))
	require.Empty(t, show(of(templateFor("x", "one", 1)), namespaceIn("a", "one"), namespaceIn("b", "two")))

	y := templateFor("y", "two", 1)
	require.Equal(t, []string{"b NotReported y"}, show(of(x, y), a, namespaceIn("b", "two")))
	y = templateFor("y", "one", 2)
	require.Equal(t, []string{"a NotReported x y", "b NoTemplate"}, show(of(x, y), a, namespaceIn("b", "two")))
	require.Empty(t, show(of(x, y), a, namespaceIn("b", "three")),
		"a namespace that no template selects is shown once")
	require.Equal(t, []string{"a NotReported x"}, show(of(x), a, namespaceIn("b", "three")))

	require.Equal(t, []string{"a Deleted"}, show(of(x)))
	require.Empty(t, show(of(x)))
	require.Equal(t, []string{"a NotReported x"}, show(of(x), a))
}

func TestBoardShowsSelectedNamespacesWithoutTemplates(t *testing.T) {
	b := &board{index: match.NewIndex(), namespaces: []*corev1.Namespace{namespaceIn("a", "one")}, showsAll: true}
	require.Equal(t, []string{"a NoTemplate"}, summaries(b))
}
