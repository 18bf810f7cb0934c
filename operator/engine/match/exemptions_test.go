package match

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

var exemptionsNow = metav1.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func exemptionOf(name, template string, objects ...v1alpha1.ExemptObject) *v1alpha1.TemplateExemption {
	return &v1alpha1.TemplateExemption{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a"},
		Spec:       v1alpha1.TemplateExemptionSpec{Template: template, Objects: objects, Reason: "a test"},
	}
}

func until(exemption *v1alpha1.TemplateExemption, end metav1.Time) *v1alpha1.TemplateExemption {
	exemption.Spec.Expires = &end
	return exemption
}

// after returns the time after a duration.
func after(duration time.Duration) metav1.Time { return metav1.NewTime(exemptionsNow.Add(duration)) }

func TestInForce(t *testing.T) {
	t.Parallel()
	deleted := exemptionOf("deleted", "t")
	deleted.DeletionTimestamp, deleted.Finalizers = &exemptionsNow, []string{"example.com/keep"}
	active, next := InForce([]*v1alpha1.TemplateExemption{
		until(exemptionOf("later", "t"), after(2*time.Hour)),
		until(exemptionOf("now", "t"), exemptionsNow),
		until(exemptionOf("past", "t"), after(-time.Second)),
		exemptionOf("forever", "t"), deleted,
		until(exemptionOf("another", "t"), after(time.Hour)),
	}, exemptionsNow)
	names := []string{}
	for _, exemption := range active {
		names = append(names, exemption.Name)
	}
	require.Equal(t, []string{"another", "forever", "later"}, names)
	require.Equal(t, after(time.Hour), *next)

	active, next = InForce([]*v1alpha1.TemplateExemption{exemptionOf("forever", "t")}, exemptionsNow)
	require.Len(t, active, 1)
	require.Nil(t, next)
}

func TestExemptionsOfTemplatesAndObjects(t *testing.T) {
	t.Parallel()
	exemptions := Exemptions{
		exemptionOf("whole", "a"),
		exemptionOf("parts", "b", v1alpha1.ExemptObject{Kind: "LimitRange", Name: "limits"},
			v1alpha1.ExemptObject{Group: "networking.k8s.io", Kind: "NetworkPolicy", Name: "deny"}),
	}
	limitRange := schema.GroupKind{Kind: "LimitRange"}
	require.NotNil(t, exemptions.OfTemplate("a"))
	require.Nil(t, exemptions.OfTemplate("b"), "a part is not the whole")
	require.NotNil(t, exemptions.OfObject("b", limitRange, "limits"))
	require.Nil(t, exemptions.OfObject("a", limitRange, "limits"), "the whole template is not asked for")
	require.Nil(t, exemptions.OfObject("c", limitRange, "limits"), "another template")
	require.Nil(t, exemptions.OfObject("b", limitRange, "other"))
	require.Nil(t, exemptions.OfObject("b", schema.GroupKind{Group: "example.com", Kind: "LimitRange"}, "limits"))
	require.Equal(t, "all", ObjectList(&exemptions[0].Spec))
	require.Equal(t, "limitrange/limits,networkpolicy.networking.k8s.io/deny", ObjectList(&exemptions[1].Spec))
	require.Equal(t, "is exempt until 2030-01-01T12:00:00Z (templateexemption/whole): a test",
		ExemptionReason(until(exemptions[0], exemptionsNow)))
}

func TestIndexOmitsExemptTemplates(t *testing.T) {
	t.Parallel()
	a, b := templateOf(t, "a", "{}"), templateOf(t, "b", "{}")
	index := NewIndex(a, b)
	ns, other := namespaceOf("team-a", nil), namespaceOf("team-b", nil)
	index.SetExemptions("team-a", Exemptions{exemptionOf("x", "a")})

	require.Equal(t, []*v1alpha1.NamespaceTemplate{b}, index.Match(ns))
	require.Equal(t, []*v1alpha1.NamespaceTemplate{a}, index.OptedOut(ns))
	require.Equal(t, []string{"team-a"}, index.ExemptFrom("a"))
	require.Empty(t, index.ExemptFrom("b"))
	require.True(t, index.IsOutside(ns, "a"))
	require.False(t, index.IsOutside(ns, "b"))
	verdict := index.Explain(a, ns)
	require.False(t, verdict.Matches)
	require.Equal(t, "the namespace is exempt (templateexemption/x): a test", verdict.Reason)
	require.True(t, index.Explain(b, ns).Matches)
	narrow := templateOf(t, "a", "{matchLabels: {tier: test}}")
	require.Equal(t, Explain(narrow, ns), index.Explain(narrow, ns), "no exemption is the reason")

	require.Len(t, index.Match(other), 2, "other namespaces are not concerned")
	require.Empty(t, index.OptedOut(other))

	object := v1alpha1.ExemptObject{Kind: "LimitRange", Name: "limits"}
	index.SetExemptions("team-a", Exemptions{exemptionOf("x", "a", object)})
	require.Len(t, index.Match(ns), 2, "an exempt object does not exempt from the template")
	index.SetExemptions("team-a", nil)
	require.Empty(t, index.exemptions)

	optedOut := namespaceOf("team-a", nil)
	optedOut.Annotations = map[string]string{v1alpha1.OptOutAnnotation: "true"}
	index.SetExemptions("team-a", Exemptions{exemptionOf("x", "a")})
	require.Empty(t, index.OptedOut(optedOut), "it is opted out of all templates")
}
