package namespace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

func namespaceIn(name, tier string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"tier": tier}}}
}

func templateFor(name, tier string, generation int64) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
	template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": tier}}
	return template
}

// summaries returns each changed status in one line.
func summaries(b *board) []string {
	lines := []string{}
	for _, s := range b.changes() {
		line := s.Namespace + " " + s.Reason
		for _, template := range s.Templates {
			line += " " + template
		}
		lines = append(lines, line)
	}
	return lines
}

func setTemplate(b *board, template *v1alpha1.NamespaceTemplate) {
	b.setTemplate(template, rollout.Single(template))
}

func TestBoardShowsANamespaceAgainOnlyIfItsStatusChanged(t *testing.T) {
	b := newBoard(match.NewIndex(templateFor("x", "one", 1)),
		[]*corev1.Namespace{namespaceIn("a", "one"), namespaceIn("b", "two")}, false)
	require.Equal(t, []string{"a NotReported x"}, summaries(b))

	b.setNamespace(namespaceIn("a", "one"))
	setTemplate(b, templateFor("x", "one", 1))
	require.Empty(t, summaries(b))

	setTemplate(b, templateFor("y", "two", 1))
	require.Equal(t, []string{"b NotReported y"}, summaries(b))
	setTemplate(b, templateFor("y", "one", 2))
	require.Equal(t, []string{"a NotReported x y", "b NoTemplate"}, summaries(b))
	b.setNamespace(namespaceIn("b", "three"))
	require.Empty(t, summaries(b), "a namespace that no template selects is shown once")
	b.deleteTemplate("y")
	require.Equal(t, []string{"a NotReported x"}, summaries(b))

	b.deleteNamespace("a")
	b.deleteNamespace("b")
	require.Equal(t, []string{"a Deleted"}, summaries(b))
	b.setNamespace(namespaceIn("a", "one"))
	require.Equal(t, []string{"a NotReported x"}, summaries(b))
}

func TestBoardShowsSelectedNamespacesWithoutTemplates(t *testing.T) {
	b := newBoard(match.NewIndex(), []*corev1.Namespace{namespaceIn("a", "one")}, true)
	require.Equal(t, []string{"a NoTemplate"}, summaries(b))
}

func TestBoardFollowsExemptions(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	b := newBoard(match.NewIndex(templateFor("x", "one", 1)), []*corev1.Namespace{namespaceIn("a", "one")}, true)
	require.Equal(t, []string{"a NotReported x"}, summaries(b))
	require.Zero(t, b.nextEnd())

	exemption := &v1alpha1.TemplateExemption{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "a"}}
	exemption.Spec.Template = "x"
	end := metav1.NewTime(now.Add(time.Hour))
	exemption.Spec.Expires = &end
	b.setExemptions("a", []*v1alpha1.TemplateExemption{exemption}, now)
	b.setExemptions("unknown", []*v1alpha1.TemplateExemption{exemption}, now)
	require.Equal(t, []string{"a NoTemplate"}, summaries(b))
	require.Equal(t, end.Time, b.nextEnd())

	b.expire(now.Add(time.Minute))
	require.Empty(t, summaries(b))
	b.expire(end.Time)
	require.Equal(t, []string{"a NotReported x"}, summaries(b), "the exemption has expired")
	require.Zero(t, b.nextEnd())

	exemption.Spec.Expires = nil
	b.setExemptions("a", []*v1alpha1.TemplateExemption{exemption}, now)
	require.Equal(t, []string{"a NoTemplate"}, summaries(b))
	b.setExemptions("a", nil, now)
	require.Equal(t, []string{"a NotReported x"}, summaries(b), "the exemption was withdrawn")
}
