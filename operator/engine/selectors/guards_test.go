package selectors

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func overlay(selector *metav1.LabelSelector) v1alpha1.Overlay {
	return v1alpha1.Overlay{Name: "o", Namespaces: v1alpha1.NamespaceSelector{LabelSelector: selector}}
}

func TestOverlaysOfGuardedTemplates(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		overlay v1alpha1.Overlay
		want    []Rule
	}{
		"some namespaces": {
			overlay(labelled("b=2", "c=3")), []Rule{"g:t a=1", "g:t a=1 b=2 c=3", "g:t a=1 b~2", "g:t a=1 c~3"},
		},
		"every namespace of the template": {overlay(labelled("a=1")), []Rule{"g:t a=1"}},
		"a part of the selector":          {overlay(labelled("a=1", "b=2")), []Rule{"g:t a=1", "g:t a=1 b=2", "g:t a=1 b~2"}},
		"other operators": {
			overlay(expressions(requirement("b", metav1.LabelSelectorOpNotIn, "x", "y"),
				requirement("c", metav1.LabelSelectorOpExists), requirement("d", metav1.LabelSelectorOpDoesNotExist))),
			[]Rule{"g:t a=1", "g:t !d a=1 b~x|y c", "g:t a=1 d", "g:t a=1 b=x|y", "g:t !c a=1"},
		},
		"an invalid selector": {overlay(expressions(requirement("b", "Near"))), []Rule{"g:t a=1"}},
		"no selector":         {overlay(nil), []Rule{"g:t a=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with := template(labelled("a=1"), guarded)
			with.Spec.Overlays = []v1alpha1.Overlay{test.overlay}
			require.Equal(t, test.want, OfTemplate(with))
			with.Annotations = nil
			require.Equal(t, []Rule{"t: a=1"}, OfTemplate(with), "who may choose labels may choose overlays")
		})
	}
}

func TestRestricts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after []Rule
		want          bool
	}{
		"nothing":                    {nil, nil, false},
		"a new guard":                {nil, []Rule{"g:t a=1"}, true},
		"a new guard, disabled":      {nil, []Rule{"d:t a=1"}, true},
		"a guard of a template":      {[]Rule{"t: a=1"}, []Rule{"g:t a=1"}, true},
		"the same":                   {[]Rule{"g:t a=1"}, []Rule{"g:t a=1"}, false},
		"enabled":                    {[]Rule{"d:t a=1"}, []Rule{"g:t a=1"}, false},
		"a narrower selector":        {[]Rule{"g:t a=1"}, []Rule{"g:t a=1 b"}, false},
		"a wider selector":           {[]Rule{"g:t a=1 b"}, []Rule{"g:t a=1"}, true},
		"fewer values":               {[]Rule{"g:t a=1|2"}, []Rule{"g:t a=1"}, false},
		"more values":                {[]Rule{"g:t a=1|2"}, []Rule{"g:t a=1|2|3"}, true},
		"more excluded values":       {[]Rule{"g:t a~1"}, []Rule{"g:t a~1|2"}, false},
		"fewer excluded values":      {[]Rule{"g:t a~1|2"}, []Rule{"g:t a~1"}, true},
		"a value of a key":           {[]Rule{"g:t a"}, []Rule{"g:t a=1"}, false},
		"another selector":           {[]Rule{"g:t a=1"}, []Rule{"g:t b=1"}, true},
		"an overlay":                 {[]Rule{"g:t a=1"}, []Rule{"g:t a=1", "g:t a=1 b=2"}, false},
		"an earlier revision's":      {[]Rule{"g:t a=1", "g:t b=1"}, []Rule{"g:t b=1"}, false},
		"no guard any more":          {[]Rule{"g:t a=1"}, []Rule{"t: a=1"}, false},
		"every namespace":            {[]Rule{"g:t a=1"}, []Rule{"g:t"}, true},
		"guarded every namespace":    {[]Rule{"g:t"}, []Rule{"g:t a=1"}, false},
		"a template without a guard": {nil, []Rule{"t: a=1"}, false},
	} {
		require.Equal(t, test.want, Restricts(test.before, test.after), name)
	}
}

// A rule includes another one only if each namespace that meets the other meets it.
func TestARuleIncludesNarrowerOnes(t *testing.T) {
	t.Parallel()
	words := []string{"k", "!k", "k=", "k=a", "k=a|b", "k=a|c", "k=|a|b", "k~a", "k~a|b", "k~", "l", "l=a", "l~a"}
	selects := func(word string, labels map[string]string) bool { return Rule("g:t " + word).selects(labels) }
	var all []map[string]string
	values := []string{"", "a", "b", "c", "other"}
	for _, l := range values {
		all = append(all, map[string]string{}, map[string]string{"k": l}, map[string]string{"l": l})
		for _, k := range values {
			all = append(all, map[string]string{"k": k, "l": l})
		}
	}
	for _, wider := range words {
		for _, narrower := range words {
			includes := true
			for _, labels := range all {
				includes = includes && (!selects(narrower, labels) || selects(wider, labels))
			}
			require.Equal(t, includes, Rule("g:t "+wider).includes(Rule("g:t m=1 "+narrower)), "%s of %s", wider, narrower)
			require.Equal(t, !includes, Restricts([]Rule{Rule("g:t " + wider)}, []Rule{Rule("g:t " + narrower)}))
		}
	}
}

// A rule takes little more than its own size, however many values it is looked up by.
func TestRulesAreNotRepeatedForManyLongValues(t *testing.T) {
	t.Parallel()
	var values []string
	for i := range maxIndexed {
		values = append(values, fmt.Sprintf("%063d", i))
	}
	rule := Rule("g:t a=" + strings.Join(values, "|"))
	require.Less(t, SizeOf([]Rule{rule}), len(rule)+100)
	data, err := newSet(rule).Data()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"any": "\na " + string(rule) + "\n"}, data)
	require.Equal(t, newSet(rule), Parse(data))
	short, err := newSet("g:t a=b|c").Data()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"label.b": "\na=b g:t a=b|c\n", "label.c": "\na=c g:t a=b|c\n"}, short)
}

func TestSizeIsAnUpperBoundOfTheData(t *testing.T) {
	t.Parallel()
	rules := []Rule{"g:t a=b|c d=e", "g:t !a", "i:x o:c:00 key", "g:u a~b|c", "g:v a=|x"}
	data, err := newSet(rules...).Data()
	require.NoError(t, err)
	actual := 0
	for _, text := range data {
		actual += len(text) - 1 // each text begins with an end of line
	}
	require.LessOrEqual(t, actual, SizeOf(rules))
	require.Less(t, SizeOf(rules), 2*actual)
	require.Zero(t, SizeOf([]Rule{"t: a=b"}))
}

// The reserve is not for users without the verb use on all templates, and the error names the largest templates.
func TestShares(t *testing.T) {
	t.Parallel()
	long := func(name string, size int) Rule { return Rule("g:" + name + " !" + strings.Repeat("x", size)) }
	require.NoError(t, newSet(long("a", share/2)).CheckShare([]Rule{long("a", share/2)}))
	require.ErrorContains(t, newSet().CheckShare([]Rule{long("a", share)}), "select by fewer labels and values")
	full := newSet("i:dns o:c:00 " + Rule(strings.Repeat("y", 2000)))
	for i := range 10 {
		full.Add(long(fmt.Sprint("big-", i), (maxSize-reserve)/10))
	}
	full.Add(long("huge", 90<<10))
	_, err := full.Data()
	require.NoError(t, err)
	require.ErrorContains(t, full.CheckShare([]Rule{"g:small a=b"}),
		"take more than 500 KiB: remove some, or select by fewer labels; "+
			"the largest are template huge (91 KiB), template big-0")
	full.Add(long("more", 200<<10))
	_, err = full.Data()
	require.ErrorContains(t, err, "the largest are template more (201 KiB), template huge (91 KiB)")
}
