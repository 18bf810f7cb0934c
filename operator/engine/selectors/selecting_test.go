package selectors

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// A rule selects the namespaces that the selector selects of which it was made.
func TestRulesSelectAsTheirSelectors(t *testing.T) {
	t.Parallel()
	one := func(operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return expressions(requirement("k", operator, values...))
	}
	for _, selector := range []*metav1.LabelSelector{
		labelled(), labelled("k=a"), labelled("k=a", "l=b"), labelled("k="),
		one(metav1.LabelSelectorOpIn, "a", "b"), one(metav1.LabelSelectorOpIn, ""),
		one(metav1.LabelSelectorOpNotIn, "a", "b"), one(metav1.LabelSelectorOpNotIn, ""),
		one(metav1.LabelSelectorOpExists), one(metav1.LabelSelectorOpDoesNotExist),
	} {
		expected, err := metav1.LabelSelectorAsSelector(selector)
		require.NoError(t, err)
		data, err := newSet(OfTemplate(template(selector))...).Data()
		require.NoError(t, err)
		for _, set := range []labels.Set{
			nil, {"k": ""}, {"k": "a"}, {"k": "b"}, {"k": "c"}, {"l": "b"}, {"k": "a", "l": "b"}, {"k": "b", "l": "b"},
		} {
			populates, initializers := Parse(data).Selecting(set)
			require.Equal(t, expected.Matches(set), populates, "%s of %s", expected, set)
			require.Empty(t, initializers)
		}
	}
}

func TestSelectingByPurpose(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rules        Set
		populates    bool
		initializers []string
	}{
		"nothing":         {newSet(), false, nil},
		"another label":   {newSet("t: a=2", "g:t a=2", "i:dns o:c:00 a=2"), false, nil},
		"a template":      {newSet("t: a=1"), true, nil},
		"every namespace": {newSet(everyNamespace), true, nil},
		"a guarded one":   {newSet("g:t a=1"), true, nil},
		"a disabled one":  {newSet("d:t a=1"), false, nil},
		"initializers":    {newSet("i:a o:d:00", "i:z o:c:00 a=1", "i:m o:c:01"), false, []string{"z", "m", "a"}},
		"both":            {newSet("i:a o:c:00", "t: !b"), true, []string{"a"}},
	} {
		populates, initializers := test.rules.Selecting(map[string]string{"a": "1"})
		require.Equal(t, test.populates, populates, name)
		require.Equal(t, test.initializers, initializers, name)
	}
}
