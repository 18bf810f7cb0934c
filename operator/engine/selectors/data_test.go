package selectors

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newSet returns a set of rules.
func newSet(rules ...Rule) Set {
	set := Set{}
	set.Add(rules...)
	return set
}

func TestDataHasRulesOfALabelNextToEachOther(t *testing.T) {
	t.Parallel()
	set := newSet("t: a=xy", "g:b a=xy", "t: b=zy", "t: a=", "t: a", "d:c !a", "g:d !b")
	data, err := set.Data()
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"label.y": "\na=xy g:b a=xy\na=xy t: a=xy\nb=zy t: b=zy\n",
		"label.":  "\na= t: a=\n",
		"any":     "\na t: a\n",
		"all":     "\nd:c !a\ng:d !b\n",
	}, data)
	data["pending"] = "[]"
	require.Equal(t, set, Parse(data))
}

func TestRulesOfEveryNamespaceReplaceOthers(t *testing.T) {
	t.Parallel()
	set := newSet("t: a=b", "g:c a=b", "i:d o:e:00 a=b", everyNamespace)
	data, err := set.Data()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"label.b": "\na=b g:c a=b\na=b i:d o:e:00 a=b\n", "all": "\nt:\n"}, data)
}

func TestDataIsAbridgedIfItIsTooLarge(t *testing.T) {
	t.Parallel()
	set := Set{}
	for i := range 5000 {
		value := fmt.Sprint(i, strings.Repeat("x", 50))
		set.Add(Rule("t: a=" + value + strings.Repeat(" b=c", 10)))
	}
	set.Add("g:c a=b")
	data, err := set.Data()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"label.b": "\na=b g:c a=b\n", "all": "\nt:\n"}, data)

	guards := Set{}
	for rule := range maps.Keys(set) {
		guards.Add(Rule(strings.Replace(string(rule), "t:", "g:t", 1)))
	}
	_, err = guards.Data()
	require.ErrorContains(t, err, "take more than 700 KiB: remove some, or select by fewer labels")
}

func TestEmptyData(t *testing.T) {
	t.Parallel()
	data, err := Set{}.Data()
	require.NoError(t, err)
	require.Empty(t, data)
	require.Empty(t, Parse(nil))
}

func TestRulesAreIndexedByTheLabelThatFewestRequire(t *testing.T) {
	t.Parallel()
	data, err := newSet("t: team=a|b tier=test", "t: team=c tier=test", "t: tier=test", "g:x app tier=test").Data()
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"label.a": "\nteam=a t: team=a|b tier=test\n",
		"label.b": "\nteam=b t: team=a|b tier=test\n",
		"label.c": "\nteam=c t: team=c tier=test\n",
		"label.t": "\ntier=test t: tier=test\n",
		"any":     "\napp g:x app tier=test\n",
	}, data)
}

func TestManyRulesOfALabelAreAbridged(t *testing.T) {
	t.Parallel()
	set := newSet("g:x team=a", "t: team=b")
	for i := range 2000 {
		set.Add(Rule(fmt.Sprintf("t: !x%d team=a", i)), Rule(fmt.Sprintf("t: !x%d app", i)), Rule(fmt.Sprintf("t: !x%d", i)))
	}
	data, err := set.Data()
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"label.a": "\nteam=a g:x team=a\nteam=a t: team=a\n",
		"label.b": "\nteam=b t: team=b\n",
		"any":     "\napp t: app\n",
		"all":     "\nt:\n",
	}, data)
}

// The rules of many labels that are found in one text are abridged, the largest first.
func TestManyRulesOfAKeyAreAbridged(t *testing.T) {
	t.Parallel()
	set := newSet("t: small")
	for i := range 44 {
		var values []string
		for j := range 240 {
			values = append(values, fmt.Sprintf("%s-%d", strings.Repeat("v", 50), j))
		}
		set.Add(Rule(fmt.Sprintf("t: k%d other~%s", i, strings.Join(values, "|"))))
	}
	data, err := set.Data()
	require.NoError(t, err)
	require.Less(t, len(data[keyAny]), 2*maxKeySize)
	require.Contains(t, data[keyAny], "\nsmall t: small\n")
	for i := range 44 {
		require.Contains(t, data[keyAny], fmt.Sprintf("\nk%[1]d t: k%[1]d", i))
	}
}
